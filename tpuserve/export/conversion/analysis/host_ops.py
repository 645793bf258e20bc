"""Finds the nodes of a signature that the host must run, and why the TPU cannot run them."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from tpuserve.export.conversion.analysis import flattening, partition
from tpuserve.export.conversion.analysis.shapes import Inference
from tpuserve.graph import state_writes
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.rules.xla_kernels import is_compilable
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library

STRINGS = "strings"
NO_KERNEL = "XLA cannot compile it"
TABLE = "a table or another resource of the host"
VARIABLE_UPDATE = state_writes.VARIABLE
GROWING = "its TensorArray can grow in a run"
LOOP = "control flow of TensorFlow 1"
SHAPE_OF_VALUES = "its output shape depends on values"
OPEN_SHAPE = "the shape of its input is known only in a run"

_DYNAMIC_SHAPE_OPS = re.compile(
    r"Where|Unique(V2|WithCounts|WithCountsV2)?|(Combined)?NonMaxSuppression\w*|DynamicPartition|"
    r"ListDiff|BooleanMask|SparseToDense"
)
_OPENING = ("Switch", "RefSwitch", "Enter", "RefEnter", "_SwitchN")
_CLOSING = ("Merge", "RefMerge", "Exit", "RefExit")

# Types of the ops of which both the host and the TPU get a copy. So no result of these ops is
# transferred between host and TPU.
_FREE = ("Const", "VarHandleOp")


def find_free(graph: GraphIR, names: Collection[str]) -> set[str]:
    """Return the names of the nodes of which both the host and the TPU get a copy.

    These nodes are constants, handles of variables and, if the graph updates no variable, reads of
    variables.
    """
    free: set[str] = set()
    # Control inputs have been removed from this graph, unless a node of the graph updates a
    # variable.
    has_updates = any(graph.nodes[name].controls for name in names)
    for name in names:
        node = graph.nodes[name]
        is_handle = node.op == "Identity" and node.definition.attr["T"].type == dtypes.RESOURCE
        is_read = node.op == "ReadVariableOp" and not has_updates
        if node.op in _FREE or (
            (is_handle or is_read) and all(value.producer in free for value in node.inputs)
        ):
            free.add(name)
    return free


def find_host_ops(
    graph: GraphIR,
    names: Collection[str],
    fed: Collection[Value],
    library: "Library",
    inference: Inference,
    refused: Mapping[str, str],
) -> dict[str, str]:
    """Find the nodes that the host must run, because XLA cannot compile them for a TPU.

    Args:
      refused: Name of a node that XLA refused in a trial compilation → why.
    """
    types = graph_ir.value_types(graph, library)
    in_control_flow = _find_control_flow(graph, names)
    nodes = {name: node for name, node in graph.nodes.items() if name in names}
    outputs = {name: _outputs(node, library) for name, node in nodes.items()}
    reasons = {
        name: LOOP
        if name in in_control_flow
        else _find_reason(node, outputs[name], graph, types, library)
        for name, node in nodes.items()
    }
    ties: dict[str, list[str]] = {}
    for one, other in partition.find_ties(graph, names, types):
        ties.setdefault(one, []).append(other)
        ties.setdefault(other, []).append(one)
    is_new = True
    while is_new:
        is_new = False
        certain = [name for name, reason in reasons.items() if reason or name in refused]
        on_host = find_reachable(certain, lambda name: ties.get(name, ()))
        open_shapes = {value for value in fed if inference.shape(value) is None}
        for name, node in nodes.items():
            if name not in on_host and any(value in open_shapes for value in node.inputs):
                reasons[name] = OPEN_SHAPE
                is_new = True
            if name in on_host or reasons[name]:
                open_shapes |= {
                    value for value in outputs[name] if _is_open(inference, value, reasons[name])
                }
    found = {name: reason for name, reason in reasons.items() if reason}
    return found | {name: reason for name, reason in refused.items() if name in names}


def _is_open(inference: Inference, value: Value, reason: str | None) -> bool:
    """Return whether a node output has an unknown rank or dimension, so that XLA cannot take it."""
    shape = inference.shape(value)
    if shape is None or reason is None:
        return shape is None
    return None in (shape if reason == SHAPE_OF_VALUES else shape[1:])


def _find_reason(
    node: Node,
    outputs: Collection[Value],
    graph: GraphIR,
    types: Mapping[Value, int],
    library: "Library",
) -> str | None:
    if any(types[value] == dtypes.STRING for value in (*node.inputs, *outputs)):
        return STRINGS
    # The node stays on the host if it uses a resource that XLA does not know, such as a table.
    # Check the resource handles among its inputs, or if there are none, those among its outputs.
    taken = [value for value in node.inputs if types[value] == dtypes.RESOURCE]
    resources = taken or [value for value in outputs if types[value] == dtypes.RESOURCE]
    if not all(
        partition.is_variable(value, graph) or partition.is_array(value, graph)
        for value in resources
    ):
        return TABLE
    if any(attribute.type == dtypes.STRING for attribute in node.definition.attr.values()):
        return STRINGS
    if any(op_defs.can_grow(inner) for inner in _walk(node, library)):
        return GROWING
    unknown = next(
        (inner for inner in _walk(node, library) if not is_compilable(inner, library)), None
    )
    if unknown is not None:
        return NO_KERNEL if unknown.op == node.op else f"XLA cannot compile {unknown.op} in it"
    write = flattening.find_write(node, library)
    if write is not None:
        return write.kind
    if any(_DYNAMIC_SHAPE_OPS.fullmatch(inner.op) for inner in _walk(node, library)):
        return SHAPE_OF_VALUES
    return None


def _walk(node: Node, library: "Library") -> "Iterator[NodeDef]":
    yield from op_defs.walk_calls([node.definition], library)


def _outputs(node: Node, library: "Library") -> list[Value]:
    outputs = op_defs.node_outputs(node.definition, library)
    return [Value(node.name, index) for index in range(len(outputs))]


def _find_control_flow(graph: GraphIR, names: Collection[str]) -> set[str]:
    """Return the names of the nodes in loops and branches that have the form of TensorFlow 1."""
    nodes = {name: graph.nodes[name] for name in graph.nodes if name in names}
    opening = [name for name, node in nodes.items() if node.op in _OPENING]
    if not opening:
        return set()
    closing = [name for name, node in nodes.items() if node.op in _CLOSING]
    readers: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for producer in graph_ir.predecessors(node):
            readers.setdefault(producer, []).append(name)
    after = find_reachable(opening, lambda name: readers.get(name, ()))
    return after & graph_ir.find_needed(nodes, closing)
