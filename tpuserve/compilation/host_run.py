"""Runs a model on inputs, to find the shapes with which the host calls the TPU.

A size such as the longest text of a batch is known only in a run.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.devices import TpuSystem
from tpuserve.errors import TpuserveError
from tpuserve.graph.references import data_inputs, replace_data_inputs
from tpuserve.lowering.ir.outlining import MUST_COMPILE
from tpuserve.runtime import loader
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.session.session_plan import make_session_plan
from tpuserve.saved_model import dtypes
from tpuserve.tags import TagSet

Array = np.ndarray[Any, Any]
Shapes = Sequence[tuple[int, ...]]

_EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True, asked_by="tpuserve compile")


class HostRun:
    """Records the shapes of the arguments of each XLA cluster that a run of a signature calls.

    Each run loads the model anew, so that no run of a signature that writes changes the next.

    Args:
      meta_graph: The MetaGraphDef, without TPU ops; it is copied.
    """

    def __init__(self, directory: Path, tags: TagSet, meta_graph: Any) -> None:
        self._directory = directory
        self._tags = tags
        self._meta_graph = type(meta_graph)()
        self._meta_graph.CopyFrom(meta_graph)
        self._recorded: dict[str, list[Shapes]] = defaultdict(list)
        # TensorFlow finds the functions of the graph's PyFunc ops as long as this graph exists.
        self._py_funcs = tf.Graph()
        graph = self._meta_graph.graph_def
        for function in graph.library.function:
            function.attr.pop(MUST_COMPILE, None)
            self._record_calls(function.node_def, is_function=True)
        self._record_calls(graph.node, is_function=False)

    def run(
        self, signature: str, inputs: Mapping[str, Array]
    ) -> tuple[Mapping[str, Sequence[Shapes]], TpuserveError | None]:
        """Run a signature once.

        Returns:
          Function name of a cluster → for each of its calls the shapes of the arguments that are no
          variables; and the error of the run, after which some calls may be missing.
        """
        self._recorded.clear()
        try:
            model = self._load()
        except TpuserveError as error:
            return {}, error
        try:
            model.run(signature, inputs)
        except TpuserveError as error:
            return dict(self._recorded), error
        finally:
            model.close()
        return dict(self._recorded), None

    def _load(self) -> LoadedModel:
        def make_plan(request: LoadRequest) -> LoadPlan:
            plan = make_load_plan(request)
            meta_graph = type(self._meta_graph)()
            meta_graph.CopyFrom(self._meta_graph)
            choice = dataclasses.replace(plan.choice, lowered=False)
            session_plan = make_session_plan(meta_graph, self._directory, choice, plan.signatures)
            return dataclasses.replace(plan, runtime_plan=session_plan)

        return loader.load(self._directory, self._tags, _EMULATED, make_plan=make_plan)

    def _record_calls(self, nodes: Any, *, is_function: bool) -> None:
        """Let each call of a cluster take its arguments through an op that records their shapes."""
        for node in list(nodes):
            if MUST_COMPILE not in node.attr:
                continue
            node.attr.pop(MUST_COMPILE)
            types, references = list(node.attr["Tin"].list.type), data_inputs(node)
            taken = [number for number, dtype in enumerate(types) if dtype != dtypes.RESOURCE]
            if not taken:
                continue
            recorder = nodes.add()
            recorder.CopyFrom(
                self._make_recorder(node.attr["f"].func.name, [types[number] for number in taken])
            )
            recorder.name = f"{node.name}_recorded_arguments"
            recorder.input[:] = [references[number] for number in taken]
            output = f"{recorder.name}:output:" if is_function else f"{recorder.name}:"
            for position, number in enumerate(taken):
                references[number] = f"{output}{position}"
            replace_data_inputs(node, references)

    def _make_recorder(self, function: str, types: Sequence[int]) -> Any:
        def record(*arguments: Array) -> Sequence[Array]:
            self._recorded[function].append([argument.shape for argument in arguments])
            return arguments

        with self._py_funcs.as_default():
            placeholders = [tf.compat.v1.placeholder(dtype) for dtype in types]
            results = tf.numpy_function(record, placeholders, list(map(tf.as_dtype, types)))
        return results[0].op.node_def
