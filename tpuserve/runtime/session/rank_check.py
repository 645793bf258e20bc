"""Checks that a graph takes inputs of other ranks than those of its signature."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve import tensorflow_internals
from tpuserve.errors import InvalidTensor
from tpuserve.graph.segments import GraphSegment
from tpuserve.runtime.loaded_model import Array
from tpuserve.runtime.session import graph_import
from tpuserve.runtime.session.graph_import import GraphHandles
from tpuserve.saved_model.signature import Signature

# Clients choose the ranks, so the results that are kept must be bounded.
_MAX_CACHED = 256
# No model has ops of this name.
_PLACEHOLDER = "tpuserve.rank_check/input"
# An integer input with more elements than this holds ids or pixels, and no sizes.
_MAX_SIZES = 16


class RankCheck:
    """Refuses inputs whose ranks TensorFlow's shape inference refuses; thread-safe.

    The signature alone does not decide, because TensorFlow Serving runs y = x / 2 + 2 with a list
    where the signature has a matrix.
    """

    def __init__(self, graph: Any, signature: Signature, *, checks_sizes: bool = False) -> None:
        self._graph = graph
        self._signature = signature
        self._causes: dict[tuple[Any, ...], str] = {}
        self._lock = threading.Lock()
        self.checks_sizes = checks_sizes and any(
            spec.dtype in ("int32", "int64") for spec in signature.inputs.values()
        )
        """Whether `check` is needed also for inputs of the ranks that the signature has."""

    def check(self, inputs: Mapping[str, Array]) -> None:
        """Check the ranks of the inputs, which `inputs` has by alias.

        Raises:
          InvalidTensor: an op of the graph does not take tensors of such ranks.
        """
        key = tuple(map(self._key, inputs.values()))
        cause = self._causes.get(key)
        if cause is None:
            with self._lock:
                cause = self._causes.get(key)
                if cause is None:
                    if len(self._causes) >= _MAX_CACHED:
                        self._causes = {}
                    cause = self._causes[key] = self._infer(inputs)
        if cause:
            text = self._signature.describe_other_shapes(inputs)
            raise InvalidTensor(f"{text}: {cause}. Send other shapes.")

    def _key(self, array: Array) -> Any:
        if not self.checks_sizes:
            return array.ndim
        return array.shape, array.tobytes() if _may_be_sizes(array) else b""

    def _infer(self, inputs: Mapping[str, Array]) -> str:
        """Import the graph with inputs of these ranks, or sizes; return the error, "" for none."""
        handles, mapped = GraphHandles(), []
        with tf.Graph().as_default() as graph:
            for alias, array in inputs.items():
                spec = self._signature.inputs[alias]
                node, _, index = spec.name.partition(":")
                if int(index or 0):
                    # A placeholder stands only for the first output; leave this input as it is.
                    continue
                if self.checks_sizes and _may_be_sizes(array):
                    tensor = tf.constant(array, name=_PLACEHOLDER)
                else:
                    shape = array.shape if self.checks_sizes else [None] * array.ndim
                    tensor = tf.compat.v1.placeholder(spec.dtype, shape, _PLACEHOLDER)
                output = tensorflow_internals.get_tensor_output(tensor)
                handles.retain([node], [output.oper])
                mapped.append((node, 0))
        try:
            content = self._graph.as_graph_def().SerializeToString()
            graph_import.import_segment(graph, GraphSegment(content, tuple(mapped)), handles)
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            return str(error).partition(" for '{{node")[0].partition("\n")[0]
        finally:
            tensorflow_internals.ops.dismantle_graph(graph)
        return ""


def _may_be_sizes(array: Array) -> bool:
    return bool(array.dtype in (np.int32, np.int64) and array.size <= _MAX_SIZES)
