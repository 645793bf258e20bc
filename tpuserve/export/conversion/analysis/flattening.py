"""Flattens a graph: replaces the calls of functions by the nodes of the functions.

A signature of TensorFlow 2 is one call of a function, which calls other functions. To divide their
nodes between host and TPU, all nodes must be in one graph. Loops and branches are not flattened.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library

OBSERVERS = ("Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2")
"""Ops that check or print values. XLA leaves them out."""

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_CONTROL_FLOW = ("If", "While", "Case")
# Matches stateful ops whose order does not matter: they change no state, or only the state of a
# random generator.
_READS = re.compile(
    "CheckNumerics|Find|HashTable|LookupTableSize|Multinomial|Placeholder|Random|ResourceGather|"
    "Stack|TensorArray|TruncatedNormal|VarHandle|VarIs|Variable|Xla"
)
_WRITES = re.compile("Assign|Destroy|Import|Insert|Scatter")


@dataclasses.dataclass(frozen=True)
class FlatGraph:
    """A graph without calls of functions.

    Attributes:
      graph: The graph.
      replaced: Output of a replaced call → the value that takes its place.
      origins: Name of a node from the body of a tracked function (see `flatten`) → name of the
        replaced call of that function.
    """

    graph: GraphIR
    replaced: Mapping[Value, Value]
    origins: Mapping[str, str]


def flatten(
    graph: GraphIR, fetches: Iterable[Value], library: "Library", tracked: Collection[str] = ()
) -> FlatGraph:
    """Replace each call on which fetched values depend by the nodes of the called function.

    Args:
      graph: The main graph.
      fetches: Values of the graph.
      library: Function name → function.
      tracked: Names of functions; the result says which nodes come from their calls.
    """
    nodes = dict(graph.nodes)
    replaced: dict[Value, Value] = {}
    origins: dict[str, str] = {}
    roots = list(fetches)
    while True:
        needed = graph_ir.find_needed(nodes, (resolve(value, replaced).producer for value in roots))
        calls = {name: called_by(nodes[name], library) for name in nodes if name in needed}
        calls = {name: called for name, called in calls.items() if called}
        if not calls:
            break
        for name, called in calls.items():
            before = set(nodes)
            replaced |= _inline(nodes[name], called, nodes, library)
            origin = origins.get(name) or (name if called in tracked else "")
            if origin:
                origins.update(dict.fromkeys(nodes.keys() - before, origin))
        for name, node in nodes.items():
            if any(value in replaced for value in node.inputs):
                inputs = [resolve(value, replaced) for value in node.inputs]
                nodes[name] = dataclasses.replace(node, inputs=inputs)
    flat = dataclasses.replace(graph, nodes=graph_ir.topological_order(nodes.values()))
    return FlatGraph(flat, replaced, origins)


def called_by(node: Node, library: "Library") -> str:
    """Return the name of the function that a node calls; "" if the node is not a call."""
    name = node.definition.attr["f"].func.name if node.op in _CALLS else node.op
    return name if name in library else ""


def resolve(value: Value, replaced: Mapping[Value, Value]) -> Value:
    """Return the value that replaces a value; a value that was not replaced is returned itself."""
    while value in replaced:
        value = replaced[value]
    return value


def _inline(
    call: Node, function: str, nodes: dict[str, Node], library: "Library"
) -> dict[Value, Value]:
    """Add the nodes of a called function, and replace the call by a NoOp that runs after them.

    Returns:
      Output of the call → the value that replaces it.
    """
    body = graph_ir.from_function_def(library[function], library)
    arguments = {
        Value(name): value for name, value in zip(body.arguments, call.inputs, strict=True)
    }
    names: dict[str, str] = {}
    for name, node in body.nodes.items():
        names[name] = graph_ir.unused_name(f"{call.name}/{name}", nodes)
        nodes[names[name]] = node

    def inlined(value: Value) -> Value:
        return arguments.get(value) or Value(names[value.producer], value.output_index)

    for name, node in body.nodes.items():
        controls = [
            *call.controls,
            *(names[control] for control in node.controls if control in names),
        ]
        inputs = [inlined(value) for value in node.inputs]
        nodes[names[name]] = Node(names[name], node.definition, inputs, controls)
    results = [inlined(value) for value in body.results]
    awaited = [
        *call.controls,
        *(value.producer for value in (*call.inputs, *results) if value.producer in nodes),
        *(names[name] for name in body.control_outputs),
    ]
    nodes[call.name] = Node(call.name, _no_op(), controls=list(dict.fromkeys(awaited)))
    return {Value(call.name, index): result for index, result in enumerate(results)}


def _no_op() -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    return NodeDef(op="NoOp")


def order_effects(graph: GraphIR, library: "Library") -> GraphIR:
    """Keep only the control inputs that order effects, such as updates of a variable.

    TensorFlow 2 lets every result of a function wait for all stateful ops of the function. Control
    inputs from ops that only read are removed, because they would make the TPU's part of a graph
    wait for unrelated ops on the host. If a control input comes from a node without an effect, such
    as a NoOp, control inputs from the nodes on which the NoOp depends, and which have an effect,
    replace it. If the graph has any effect, reading a variable counts as an effect as well.
    """
    effects = {node.name for node in graph.nodes.values() if has_effect(node, library)}
    if effects:
        effects |= {node.name for node in graph.nodes.values() if node.op == "ReadVariableOp"}
    awaited: dict[str, frozenset[str]] = {}
    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        controls = _union(awaited, node.controls)
        awaited[node.name] = (
            frozenset((node.name,))
            if node.name in effects
            else controls | _union(awaited, [value.producer for value in node.inputs])
        )
        nodes[node.name] = dataclasses.replace(node, controls=sorted(controls))
    return dataclasses.replace(graph, nodes=nodes)


def _union(awaited: Mapping[str, frozenset[str]], names: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(awaited.get(name, frozenset()) for name in names))


def find_observer(node: Node, library: "Library") -> str:
    """Return the op type by which a node, or a function that it calls, checks or prints values.

    Returns:
      One of `OBSERVERS`; "" if the node neither checks nor prints values.
    """
    inner = op_defs.walk_calls([node.definition], library)
    return next((inner_node.op for inner_node in inner if inner_node.op in OBSERVERS), "")


def has_effect(node: Node, library: "Library") -> bool:
    """Return whether a node, or a function that it calls, changes something outside of the graph.

    Ops that only check or print values do not count.
    """
    return any(
        inner.op not in (*OBSERVERS, *_CONTROL_FLOW, *_CALLS, *library)
        and op_defs.is_stateful(inner, library)
        and (_WRITES.search(inner.op) or not _READS.search(inner.op))
        for inner in op_defs.walk_calls([node.definition], library)
    )
