"""Checks that a graph takes inputs of other ranks than those of its signature."""

import threading
from collections.abc import Mapping
from typing import Any

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


class RankCheck:
    """Refuses inputs whose ranks TensorFlow's shape inference refuses; thread-safe.

    The signature alone does not decide, because TensorFlow Serving runs y = x / 2 + 2 with a list
    where the signature has a matrix. But some kernels, such as the convolutions of oneDNN, end the
    process if an input has too few dimensions.
    """

    def __init__(self, graph: Any, signature: Signature) -> None:
        """Create a check for a signature of a tf.Graph."""
        self._graph = graph
        self._signature = signature
        self._causes: dict[tuple[int, ...], str] = {}
        self._lock = threading.Lock()

    def check(self, inputs: Mapping[str, Array]) -> None:
        """Check the ranks of the inputs, which `inputs` has by alias.

        Raises:
          InvalidTensor: an op of the graph does not take tensors of such ranks.
        """
        ranks = tuple(array.ndim for array in inputs.values())
        cause = self._causes.get(ranks)
        if cause is None:
            with self._lock:
                cause = self._causes.get(ranks)
                if cause is None:
                    if len(self._causes) >= _MAX_CACHED:
                        self._causes = {}
                    cause = self._causes[ranks] = self._infer(dict(zip(inputs, ranks, strict=True)))
        if cause:
            text = self._signature.describe_other_shapes(inputs)
            raise InvalidTensor(f"{text}: {cause}. Send other shapes.")

    def _infer(self, ranks: Mapping[str, int]) -> str:
        """Import the graph with inputs of these ranks; return the error, "" for none."""
        handles, mapped = GraphHandles(), []
        with tf.Graph().as_default() as graph:
            for alias, rank in ranks.items():
                spec = self._signature.inputs[alias]
                node, _, index = spec.name.partition(":")
                if int(index or 0):
                    # A placeholder stands only for the first output; leave this input as it is.
                    continue
                placeholder = tf.compat.v1.placeholder(spec.dtype, [None] * rank, _PLACEHOLDER)
                output = tensorflow_internals.get_tensor_output(placeholder)
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
