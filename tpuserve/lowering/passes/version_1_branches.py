"""Finds conditional branches of TensorFlow 1, which consist of Switch and Merge nodes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.lowering.passes.subgraphs import Subgraph, extract_subgraph
from tpuserve.lowering.passes.version_1_loops import OPS, is_loop_merge


@dataclass(frozen=True)
class Branch:
    """A conditional of TensorFlow 1, with all that is needed to replace it by an If.

    Attributes:
      controls: Names of the nodes outside of the branches that must run before the branches.
    """

    predicate: Value
    captured: tuple[Value, ...]
    branches: tuple[Subgraph, Subgraph]
    merges: tuple[str, ...]
    controls: tuple[str, ...]


def find_branch(nodes: Mapping[str, Node], replaced: Collection[Value]) -> Branch | None:
    """Find a conditional of TensorFlow 1 that contains no other conditional."""
    groups: dict[Value, list[str]] = {}
    for name, node in nodes.items():
        if node.op != "Merge" or Value(name) in replaced or is_loop_merge(nodes, name):
            continue
        predicate = _find_predicate(nodes, name)
        if predicate is not None:
            groups.setdefault(predicate, []).append(name)
    for predicate, merges in groups.items():
        for chosen in [merges, *([merge] for merge in merges)]:
            branch = _make_branch(nodes, predicate, chosen)
            if branch is not None:
                return branch
    return None


def _find_predicate(nodes: Mapping[str, Node], merge: str) -> Value | None:
    predicates = set()
    for value in nodes[merge].inputs:
        side = extract_subgraph(nodes, [value], {}, (), stop_ops=("Switch",))
        if any(node.op in OPS for node in side.nodes.values()):
            return None
        predicates |= {_origin(nodes, nodes[name].inputs[1]) for name in side.stopped}
    return predicates.pop() if len(predicates) == 1 else None


def _origin(nodes: Mapping[str, Node], value: Value) -> Value:
    """Return the node output that a chain of Identity nodes, ending in `value`, forwards."""
    while value.producer in nodes and nodes[value.producer].op == "Identity":
        value = nodes[value.producer].inputs[0]
    return value


def _make_branch(nodes: Mapping[str, Node], predicate: Value, merges: list[str]) -> Branch | None:
    """Describe the conditional that ends in some Merge nodes."""
    sides: dict[int, list[Value]] = {0: [], 1: []}
    for merge in merges:
        first, second = nodes[merge].inputs
        by_side = {_find_side(nodes, first): first, _find_side(nodes, second): second}
        if by_side.keys() != {0, 1}:
            return None
        for side, values in sides.items():
            values.append(by_side[side])
    switches = {
        name: node
        for name, node in nodes.items()
        if node.op == "Switch" and _origin(nodes, node.inputs[1]) == predicate
    }
    captured = dict.fromkeys(node.inputs[0] for node in switches.values())
    index = {value: position for position, value in enumerate(captured)}
    branches = []
    for side, values in sides.items():
        inputs = {Value(name, side): index[node.inputs[0]] for name, node in switches.items()}
        branches.append(extract_subgraph(nodes, values, inputs, switches))
    if not all(branch.is_closed for branch in branches):
        return None
    used = {position for branch in branches for position in branch.arguments}
    taken = tuple(value for value in captured if index[value] in used)
    narrowed = [
        branch.renumber({index[value]: number for number, value in enumerate(taken)})
        for branch in branches
    ]
    before = graph_ir.find_needed(nodes, [value.producer for value in (*taken, predicate)])
    if not before.isdisjoint(merges):
        return None
    controls = dict.fromkeys(control for node in switches.values() for control in node.controls)
    return Branch(predicate, taken, (narrowed[0], narrowed[1]), tuple(merges), tuple(controls))


def _find_side(nodes: Mapping[str, Node], value: Value) -> int | None:
    """Return 0 if a node output belongs to the false branch, 1 for the true branch, else None."""
    visited: set[str] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        node = nodes.get(current.producer)
        if node is None:
            continue
        if node.op == "Switch":
            return current.output_index
        if node.name not in visited:
            visited.add(node.name)
            # A node without data inputs, such as a constant, has a control input from an Identity
            # of an output of a Switch.
            pending.extend([*node.inputs, *map(Value, node.controls)])
    return None
