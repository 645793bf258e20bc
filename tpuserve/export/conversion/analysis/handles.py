"""Finds the ops that create the resources of a graph, such as variables and TensorArrays."""

from collections.abc import Collection, Mapping

from tpuserve.graph.reachability import CREATED_IN_EACH_RUN
from tpuserve.lowering.ir.graph_ir import GraphIR, Value
from tpuserve.saved_model import dtypes

# Ops that return a handle of the resource that they take: a loop takes and returns the handles of
# all resources that its body uses.
_PASSING = ("Identity", "While", "StatelessWhile", "TensorArrayGradV3")


def is_variable(value: Value, graph: GraphIR) -> bool:
    """Return whether a resource handle is that of a variable."""
    return _find_creator(value, graph) == "VarHandleOp"


def is_array(value: Value, graph: GraphIR) -> bool:
    """Return whether a resource handle is that of a TensorArray or stack of TensorFlow 1.

    XLA compiles these if all ops that use one are in the same computation.
    """
    return _find_creator(value, graph) in CREATED_IN_EACH_RUN


def find_ties(
    graph: GraphIR, names: Collection[str], types: Mapping[Value, int]
) -> list[tuple[str, str]]:
    """Return pairs of nodes that must both run on the host or both on the TPU.

    One produces what the other uses, and what cannot be copied between host and TPU: a value of
    dtype variant, such as a TensorList, or a TensorArray of TensorFlow 1.

    Args:
      types: Node output → DataType enum value.
    """
    return [
        (name, value.producer)
        for name in names
        for value in graph.nodes[name].inputs
        if value.producer in names
        and (
            types[value] == dtypes.VARIANT
            or (types[value] == dtypes.RESOURCE and is_array(value, graph))
        )
    ]


def _find_creator(value: Value, graph: GraphIR) -> str:
    node = graph.nodes.get(value.producer)
    while node is not None and node.op in _PASSING:
        value = node.inputs[value.output_index]
        node = graph.nodes.get(value.producer)
    return "" if node is None else node.op
