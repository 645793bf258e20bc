"""Replaces the calls of XLA clusters in a graph by ops that call a Python function.

A session runs the graph; the Python function runs the clusters on PJRT devices.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidTensor
from tpuserve.graph import state_writes
from tpuserve.graph.references import control_inputs, data_inputs
from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.ir.outlining import MUST_COMPILE
from tpuserve.pjrt.device_core import Array
from tpuserve.stablehlo.cluster_finder import XlaCluster

RunCluster = Callable[[str, Sequence[Array]], Sequence[Array]]


class ClusterCalls:
    """Creates the ops by which a graph calls a Python function to run an XLA cluster.

    TensorFlow finds the Python function of such an op by a token in the op.

    Args:
      clusters: function name → the XLA cluster, a function that XLA compiles as a whole.
      run: the Python function that runs a cluster. It takes the function name of the cluster
        and the values of those arguments that are not variables, and returns the results.
    """

    def __init__(self, clusters: Mapping[str, XlaCluster], run: RunCluster) -> None:
        self._clusters = clusters
        self._run = run
        self._graph = tf.Graph()

    def replace_in(self, graph: Any) -> None:
        """Replace each call of a cluster by an op that calls the Python function."""
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            for node in nodes:
                name = node.attr["f"].func.name if MUST_COMPILE in node.attr else ""
                if name in self._clusters:
                    self._replace(node, name)

    def _replace(self, node: Any, function: str) -> None:
        arguments = self._clusters[function].arguments
        feeds = [
            reference
            for reference, argument in zip(data_inputs(node), arguments, strict=True)
            if argument.variable is None
        ]
        input_types = [argument.dtype for argument in arguments if argument.variable is None]
        output_types = [tf.as_dtype(number) for number in node.attr["Tout"].list.type]
        replacement = type(node)()
        replacement.CopyFrom(self._make_py_func(function, input_types, output_types))
        replacement.name = node.name
        replacement.input[:] = [*feeds, *control_inputs(node)]
        node.CopyFrom(replacement)

    def _make_py_func(
        self, function: str, input_types: Sequence[Any], output_types: Sequence[Any]
    ) -> Any:
        """Return the NodeDef of an op that calls the Python function to run a cluster."""

        def run(*feeds: Array) -> Sequence[Array]:
            try:
                return self._run(function, feeds)
            except InvalidTensor as error:
                # Raise a ValueError in place of the InvalidTensor, whose type TensorFlow would not
                # keep.
                raise ValueError(str(error)) from error

        with self._graph.as_default():
            placeholders = [tf.compat.v1.placeholder(dtype) for dtype in input_types]
            results = tf.numpy_function(run, placeholders, output_types)
        return results[0].op.node_def


def uses_variables(graph: Any) -> bool:
    """Return whether an op of a graph, or of a function that it calls, uses a variable's value."""
    functions = {function.signature.name: function for function in graph.library.function}
    return any(
        node.op in ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableV2")
        or state_writes.updates_resource_variable(node.op)
        for node in op_defs.walk_calls(graph.node, functions)
    )
