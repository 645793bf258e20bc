"""Replaces the loops and branches of TensorFlow 1 by While and If ops, which XLA can compile.

In TensorFlow 1, a loop consists of Enter, Merge, Switch, NextIteration and Exit nodes, and a branch
of Switch and Merge nodes.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import version_1_loops
from tpuserve.lowering.passes.subgraphs import Subgraph, extract_subgraph
from tpuserve.lowering.passes.version_1_loops import OPS, Loop, find_loop, is_loop_merge


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
    """Find a conditional of TensorFlow 1 that contains no other conditional.

    Returns:
      None if there is no such conditional.
    """
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


@dataclass(frozen=True)
class FunctionalGraph:
    """The result of `functionalize`: a graph with While and If ops.

    Attributes:
      graph: The graph. It still has the nodes of the loops and branches of TensorFlow 1, but its
        results do not depend on them.
      replaced: Output of an original loop or branch → the output of the While or If that replaces
        it.
    """

    graph: GraphIR
    replaced: Mapping[Value, Value]


def functionalize(graph: GraphIR, library: "dict[str, Any]") -> FunctionalGraph:
    """Replace the loops and branches of TensorFlow 1 in a graph by While and If ops.

    Ops such as Switch and Merge stay unchanged if they are not connected in the way that TensorFlow
    1 connects them for a loop or branch.

    Args:
      library: Function name → FunctionDef; the functions for loops and branches are added.
    """
    if not any(node.op in version_1_loops.OPS for node in graph.nodes.values()):
        return FunctionalGraph(graph, {})
    rewriter = _Rewriter(graph, library)
    rewriter.replace_loops()
    rewriter.replace_branches()
    return FunctionalGraph(rewriter.finish(), rewriter.replaced)


def functionalize_function(name: str, library: "dict[str, Any]") -> None:
    """Replace the loops and branches of TensorFlow 1 in the body of a function, in place."""
    function = library[name]
    if any(node.op in version_1_loops.OPS for node in function.node_def):
        body = functionalize(graph_ir.from_function_def(function, library), library).graph
        graph_ir.replace_function_body(function, _prune(body), library)


class _Rewriter:
    """Replaces the loops and branches of TensorFlow 1 in one graph."""

    def __init__(self, graph: GraphIR, library: "dict[str, Any]") -> None:
        self.replaced: dict[Value, Value] = {}
        self._graph = graph
        self._nodes = dict(graph.nodes)
        self._library = library
        self._types = graph_ir.value_types(graph, library)

    def finish(self) -> GraphIR:
        return dataclasses.replace(
            self._graph,
            nodes=graph_ir.topological_order(self._nodes.values()),
            results=[graph_ir.resolve(value, self.replaced) for value in self._graph.results],
        )

    def replace_loops(self) -> None:
        """Replace all loops by While ops, inner loops before the loops that contain them."""
        pending = [name for name, node in self._nodes.items() if node.op == "LoopCond"]
        while pending:
            loops = {name: find_loop(self._nodes, name) for name in pending}
            innermost = {name: loop for name, loop in loops.items() if loop is not None}
            if not innermost:
                return
            for loop in innermost.values():
                self._replace_loop(loop)
            pending = [name for name in pending if name not in innermost]

    def replace_branches(self) -> None:
        """Replace all branches by If ops, inner branches before the branches that contain them."""
        while branch := find_branch(self._nodes, self.replaced):
            self._replace_branch(branch)

    def _replace_loop(self, loop: Loop) -> None:
        """Add a While, and use its results wherever the results of a loop were used."""
        # Names of the Enter nodes for values from outside that the loop only reads. In the While,
        # these values become loop variables that do not change.
        constant = dict.fromkeys([*loop.condition.entered, *loop.body.entered])
        arguments = [
            *(self._types[Value(variable.merge)] for variable in loop.variables),
            *(self._types[self._nodes[name].inputs[0]] for name in constant),
        ]
        first = len(loop.variables)
        entered = {name: first + index for index, name in enumerate(constant)}
        name = self._nodes[loop.variables[0].merge].name.rpartition("/")[0] or "while"
        condition = self._add_function(f"{name}_cond", loop.condition, arguments, entered, ())
        body = self._add_function(
            f"{name}_body", loop.body, arguments, entered, range(first, len(arguments))
        )
        inputs = [
            *(graph_ir.resolve(variable.initial, self.replaced) for variable in loop.variables),
            *(self._nodes[enter].inputs[0] for enter in constant),
        ]
        entering = [*constant, *(variable.enter for variable in loop.variables)]
        controls = [control for enter in entering for control in self._nodes[enter].controls]
        node = self._add_node("While", f"{name}/functional", inputs, controls)
        node.definition.attr["T"].list.type.extend(arguments)
        node.definition.attr["cond"].func.name = condition
        node.definition.attr["body"].func.name = body
        node.definition.attr["output_shapes"].list.SetInParent()
        node.definition.attr["parallel_iterations"].i = 10
        self._finish_node(node, arguments, [condition, body])
        switches = {
            variable.switch: index
            for index, variable in enumerate(loop.variables)
            if variable.switch
        }
        self._replace(
            {
                Value(exit_name): Value(node.name, switches[exit_node.inputs[0].producer])
                for exit_name, exit_node in self._nodes.items()
                if exit_node.op == "Exit" and exit_node.inputs[0].producer in switches
            }
        )

    def _replace_branch(self, branch: Branch) -> None:
        """Add an If, and use its outputs wherever the Merge nodes of a branch were used."""
        arguments = [self._types[value] for value in branch.captured]
        name = branch.merges[0].rpartition("/")[0] or "cond"
        names = [
            self._add_function(f"{name}_{suffix}", subgraph, arguments, {}, ())
            for suffix, subgraph in zip(("false", "true"), branch.branches, strict=True)
        ]
        node = self._add_node(
            "If", f"{name}/functional", [branch.predicate, *branch.captured], branch.controls
        )
        results = [self._types[Value(merge)] for merge in branch.merges]
        node.definition.attr["Tcond"].type = self._types[branch.predicate]
        node.definition.attr["Tin"].list.type.extend(arguments)
        node.definition.attr["Tin"].list.SetInParent()
        node.definition.attr["Tout"].list.type.extend(results)
        node.definition.attr["output_shapes"].list.SetInParent()
        for attribute, function in zip(("else_branch", "then_branch"), names, strict=True):
            node.definition.attr[attribute].func.name = function
        self._finish_node(node, results, names)
        self._replace(
            {Value(merge): Value(node.name, index) for index, merge in enumerate(branch.merges)}
        )

    def _add_function(
        self,
        name: str,
        subgraph: Subgraph,
        arguments: list[int],
        entered: Mapping[str, int],
        passed: Iterable[int],
    ) -> str:
        """Add the body or condition of a loop, or a branch, to the library as a function."""
        body = subgraph.to_graph(arguments, entered, passed)
        functional = _prune(functionalize(body, self._library).graph)
        safe = "".join(character if character.isalnum() else "_" for character in name)
        unused = graph_ir.unused_name(safe, self._library)
        self._library[unused] = graph_ir.to_function_def(functional, unused, self._library)
        return unused

    def _add_node(self, op: str, name: str, inputs: list[Value], controls: Iterable[str]) -> Node:
        from tensorflow.core.framework.node_def_pb2 import NodeDef

        unused = graph_ir.unused_name(name, self._nodes)
        node = Node(unused, NodeDef(op=op), inputs, list(dict.fromkeys(controls)))
        self._nodes[unused] = node
        return node

    def _finish_node(self, node: Node, results: list[int], functions: Iterable[str]) -> None:
        """Set the op type of a new While or If, and record the types of its outputs."""
        if not any(self._library[name].signature.is_stateful for name in functions):
            node.definition.op = f"Stateless{node.definition.op}"
        for index, dtype in enumerate(results):
            self._types[Value(node.name, index)] = dtype

    def _replace(self, replaced: Mapping[Value, Value]) -> None:
        """Let all nodes use new node outputs in place of old ones."""
        self.replaced.update(replaced)
        producers = {old.producer: new.producer for old, new in replaced.items()}
        for name, node in self._nodes.items():
            if any(value in replaced for value in node.inputs) or any(
                control in producers for control in node.controls
            ):
                self._nodes[name] = dataclasses.replace(
                    node,
                    inputs=[replaced.get(value, value) for value in node.inputs],
                    controls=[producers.get(control, control) for control in node.controls],
                )


def _prune(graph: GraphIR) -> GraphIR:
    """Return a copy of a graph without the nodes of loops and branches that were replaced."""
    results = [value.producer for value in graph.results]
    needed = graph_ir.find_needed(graph.nodes, [*results, *graph.control_outputs])
    removed: set[str] = set()
    num_removed = -1
    # Find the nodes of the original loops and branches, and the nodes that depend on them. The
    # nodes of a loop form a cycle, so one pass in topological order may miss some.
    while len(removed) > num_removed:
        num_removed = len(removed)
        for name, node in graph.nodes.items():
            if name not in needed and (
                node.op in version_1_loops.OPS
                or not removed.isdisjoint(graph_ir.predecessors(node))
            ):
                removed.add(name)
    nodes = {name: node for name, node in graph.nodes.items() if name not in removed}
    return dataclasses.replace(graph, nodes=nodes)
