"""Replaces the control flow of TensorFlow 1 by While and If ops, which XLA compiles.

TensorFlow 1 writes a loop as Enter, Merge, Switch, NextIteration and Exit nodes, and a branch as
Switch and Merge nodes: "Implementation of Control Flow in TensorFlow", 2017.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes.subgraphs import Subgraph, extract_subgraph

CONTROL_FLOW_OPS = frozenset(("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"))


@dataclass(frozen=True)
class FunctionalGraph:
    """A graph whose control flow is functional, as far as that was possible.

    Attributes:
      graph: The graph. The nodes of the control flow are still there, but are no longer needed.
      replaced: Output of a loop or branch → the output of the While or If that takes its place.
    """

    graph: GraphIR
    replaced: Mapping[Value, Value]


@dataclass(frozen=True)
class _LoopVariable:
    """A value that each turn of a loop changes: the names of its nodes.

    Attributes:
      merge: Merges the value before the first turn and the value after each turn.
      enter: Takes the value before the first turn into the loop.
      initial: The value before the first turn.
      switch: The Switch that leads to the body or to the exits; None if nothing reads it.
      next_value: The value after a turn.
    """

    merge: str
    enter: str
    initial: Value
    switch: str | None
    next_value: Value


@dataclass(frozen=True)
class _Loop:
    """A loop: its nodes, and the functions for its condition and its body."""

    condition: Subgraph
    body: Subgraph
    variables: tuple[_LoopVariable, ...]


@dataclass(frozen=True)
class _Branch:
    """The Merge nodes of one condition, and the functions for both of its branches.

    Attributes:
      predicate: The condition.
      captured: The values that the branches take, in the order of their arguments.
      branches: The subgraphs for false and true. Each result belongs to one of `merges`.
      merges: Names of the Merge nodes.
      controls: Names of nodes outside of the branches that must run before.
    """

    predicate: Value
    captured: tuple[Value, ...]
    branches: tuple[Subgraph, Subgraph]
    merges: tuple[str, ...]
    controls: tuple[str, ...]


def functionalize(graph: GraphIR, library: "dict[str, Any]") -> FunctionalGraph:
    """Replace loops and branches of TensorFlow 1, from the inside to the outside.

    What does not have the form that TensorFlow 1 gives to loops and branches stays as it is.

    Args:
      graph: A graph without calls of functions that hold such control flow.
      library: Function name → function; the functions of loops and branches are added.
    """
    if not any(node.op in CONTROL_FLOW_OPS for node in graph.nodes.values()):
        return FunctionalGraph(graph, {})
    rewriter = _Rewriter(graph, library)
    rewriter.replace_loops()
    rewriter.replace_branches()
    return FunctionalGraph(rewriter.finish(), rewriter.replaced)


class _Rewriter:
    """Replaces the control flow of one graph.

    Attributes:
      replaced: See `FunctionalGraph`.
    """

    def __init__(self, graph: GraphIR, library: "dict[str, Any]") -> None:
        self.replaced: dict[Value, Value] = {}
        self._graph = graph
        self._nodes = dict(graph.nodes)
        self._library = library
        self._types = graph_ir.value_types(graph, library)

    def finish(self) -> GraphIR:
        """Return the graph."""
        return dataclasses.replace(
            self._graph,
            nodes=graph_ir.topological_order(self._nodes.values()),
            results=[self._resolve(value) for value in self._graph.results],
        )

    def replace_loops(self) -> None:
        """Replace each loop whose condition and body have no other loop, until none is left."""
        pending = [name for name, node in self._nodes.items() if node.op == "LoopCond"]
        while pending:
            loops = {name: self._find_loop(name) for name in pending}
            innermost = {name: loop for name, loop in loops.items() if loop is not None}
            if not innermost:
                return
            for loop in innermost.values():
                self._replace_loop(loop)
            pending = [name for name in pending if name not in innermost]

    def replace_branches(self) -> None:
        """Replace each branch whose two sides have no other branch, until none is left."""
        while branch := self._find_branch():
            self._replace_branch(branch)

    def _find_loop(self, loop_cond: str) -> _Loop | None:
        """Return the loop of a LoopCond; None if it has another loop inside, or another form."""
        predicate = self._nodes[loop_cond].inputs[0]
        switches = {
            node.inputs[0].producer: name
            for name, node in self._nodes.items()
            if node.op == "Switch" and node.inputs[1].producer == loop_cond
        }
        merges = dict.fromkeys(name for name in switches if self._is(name, "Merge"))
        # A value that the condition alone reads has no Switch.
        merges |= dict.fromkeys(
            name for name in self._walk([predicate], merges) if self._is_loop_merge(name)
        )
        variables = [self._find_variable(name, switches.get(name)) for name in merges]
        if not all(variables):
            return None
        found = tuple(each for each in variables if each is not None)
        stop = {*merges, *(each.switch for each in found if each.switch), loop_cond}
        condition_inputs = {Value(each.merge): index for index, each in enumerate(found)}
        body_inputs = {
            value: index
            for index, each in enumerate(found)
            for value in [Value(each.switch, 1) if each.switch else Value(each.merge)]
        }
        # A value that a turn leaves as it is may come from the Merge directly.
        body_inputs |= {value: index for value, index in condition_inputs.items()}
        condition = extract_subgraph(self._nodes, [predicate], condition_inputs, stop)
        body = extract_subgraph(self._nodes, [each.next_value for each in found], body_inputs, stop)
        inner = [*condition.nodes.values(), *body.nodes.values()]
        if any(node.op in ("LoopCond", "NextIteration", "Exit") for node in inner):
            return None
        if not (condition.is_closed and body.is_closed):
            return None
        return _Loop(condition, body, found)

    def _find_variable(self, merge: str, switch: str | None) -> _LoopVariable | None:
        inputs = [self._nodes.get(value.producer) for value in self._nodes[merge].inputs]
        entering = [node for node in inputs if node is not None and node.op == "Enter"]
        turning = [node for node in inputs if node is not None and node.op == "NextIteration"]
        if len(entering) != 1 or len(turning) != 1:
            return None
        return _LoopVariable(
            merge, entering[0].name, entering[0].inputs[0], switch, turning[0].inputs[0]
        )

    def _is(self, name: str, op: str) -> bool:
        return name in self._nodes and self._nodes[name].op == op

    def _is_loop_merge(self, name: str) -> bool:
        return self._is(name, "Merge") and any(
            self._is(value.producer, "NextIteration") for value in self._nodes[name].inputs
        )

    def _walk(self, values: Iterable[Value], stop: Mapping[str, None]) -> list[str]:
        """Return the nodes that values depend on, up to loop variables and values from outside."""
        reached: dict[str, None] = {}
        pending = [value.producer for value in values]
        while pending:
            name = pending.pop()
            if name in reached or name not in self._nodes:
                continue
            reached[name] = None
            if name not in stop and not self._is(name, "Enter") and not self._is_loop_merge(name):
                pending.extend(graph_ir.predecessors(self._nodes[name]))
        return list(reached)

    def _replace_loop(self, loop: _Loop) -> None:
        """Add a While that takes the place of a loop."""
        # Values from outside, which every turn of the loop reads.
        constant = dict.fromkeys([*loop.condition.entered, *loop.body.entered])
        arguments = [
            *(self._types[Value(each.merge)] for each in loop.variables),
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
            *(self._resolve(each.initial) for each in loop.variables),
            *(self._nodes[each].inputs[0] for each in constant),
        ]
        entering = [*constant, *(each.enter for each in loop.variables)]
        controls = [control for each in entering for control in self._nodes[each].controls]
        node = self._add_node("While", f"{name}/functional", inputs, controls)
        node.definition.attr["T"].list.type.extend(arguments)
        node.definition.attr["cond"].func.name = condition
        node.definition.attr["body"].func.name = body
        node.definition.attr["output_shapes"].list.SetInParent()
        node.definition.attr["parallel_iterations"].i = 10
        self._finish_node(node, arguments, [condition, body])
        switches = {each.switch: index for index, each in enumerate(loop.variables) if each.switch}
        self._replace(
            {
                Value(exit_name): Value(node.name, switches[exit_node.inputs[0].producer])
                for exit_name, exit_node in self._nodes.items()
                if exit_node.op == "Exit" and exit_node.inputs[0].producer in switches
            }
        )

    def _find_branch(self) -> _Branch | None:
        """Return the Merge nodes of a condition whose branches have no other Merge."""
        groups: dict[Value, list[str]] = {}
        for name, node in self._nodes.items():
            if node.op != "Merge" or Value(name) in self.replaced or self._is_loop_merge(name):
                continue
            predicate = self._find_predicate(name)
            if predicate is not None:
                groups.setdefault(predicate, []).append(name)
        for predicate, merges in groups.items():
            branch = self._make_branch(predicate, merges) or self._make_branch(
                predicate, merges[:1]
            )
            if branch is not None:
                return branch
        return None

    def _find_predicate(self, merge: str) -> Value | None:
        """Return the condition of a Merge; None if another Merge is in between, or another form."""
        predicates = set()
        for value in self._nodes[merge].inputs:
            side = extract_subgraph(self._nodes, [value], {}, (), stop_ops=("Switch",))
            if any(node.op in CONTROL_FLOW_OPS for node in side.nodes.values()):
                return None
            predicates |= {self._origin(self._nodes[name].inputs[1]) for name in side.stopped}
        return predicates.pop() if len(predicates) == 1 else None

    def _origin(self, value: Value) -> Value:
        """Return the value that Identity ops forward."""
        while value.producer in self._nodes and self._nodes[value.producer].op == "Identity":
            value = self._nodes[value.producer].inputs[0]
        return value

    def _make_branch(self, predicate: Value, merges: list[str]) -> _Branch | None:
        """Return a branch; None if one of its Merge nodes depends on another of them."""
        sides: dict[int, list[Value]] = {0: [], 1: []}
        for merge in merges:
            by_side = {self._find_side(value): value for value in self._nodes[merge].inputs}
            if by_side.keys() != {0, 1}:
                return None
            for side, value in by_side.items():
                sides[side].append(value)
        switches = {
            name: node
            for name, node in self._nodes.items()
            if node.op == "Switch" and self._origin(node.inputs[1]) == predicate
        }
        captured = dict.fromkeys(node.inputs[0] for node in switches.values())
        index = {value: position for position, value in enumerate(captured)}
        branches = []
        for side, values in sides.items():
            inputs = {Value(name, side): index[node.inputs[0]] for name, node in switches.items()}
            branches.append(extract_subgraph(self._nodes, values, inputs, switches))
        if not all(branch.is_closed for branch in branches):
            return None
        used = {position for branch in branches for position in branch.arguments}
        taken = tuple(value for value in captured if index[value] in used)
        narrowed = [
            branch.renumber({index[value]: number for number, value in enumerate(taken)})
            for branch in branches
        ]
        before = self._walk_back([value.producer for value in (*taken, predicate)])
        if not before.isdisjoint(merges):
            return None
        controls = dict.fromkeys(control for node in switches.values() for control in node.controls)
        return _Branch(predicate, taken, (narrowed[0], narrowed[1]), tuple(merges), tuple(controls))

    def _find_side(self, value: Value) -> int | None:
        """Return 0 for a value of the branch for false, 1 for one of the branch for true."""
        visited: set[str] = set()
        pending = [value]
        while pending:
            current = pending.pop()
            node = self._nodes.get(current.producer)
            if node is None:
                continue
            if node.op == "Switch":
                return current.output_index
            if node.name not in visited:
                visited.add(node.name)
                # A control input comes from the Identity of an output of a Switch.
                pending.extend([*node.inputs, *map(Value, node.controls)])
        return None

    def _walk_back(self, names: Iterable[str]) -> set[str]:
        reached: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in reached and name in self._nodes:
                reached.add(name)
                pending.extend(graph_ir.predecessors(self._nodes[name]))
        return reached

    def _replace_branch(self, branch: _Branch) -> None:
        """Add an If that takes the place of Merge nodes."""
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
            {Value(each): Value(node.name, index) for index, each in enumerate(branch.merges)}
        )

    def _add_function(
        self,
        name: str,
        subgraph: Subgraph,
        arguments: list[int],
        entered: Mapping[str, int],
        passed: Iterable[int],
    ) -> str:
        """Add a subgraph to the library, with functional control flow; return its name.

        Args:
          name: A name for the function.
          subgraph: The nodes.
          arguments: DataType enum values of the arguments.
          entered: Name of an Enter → index of the argument that takes its place.
          passed: Indices of the arguments that are returned too, after the results.
        """
        body = subgraph.to_graph(arguments, entered, passed)
        functional = functionalize(body, self._library).graph
        needed = _prune(functional)
        safe = "".join(each if each.isalnum() else "_" for each in name)
        unused = graph_ir.unused_name(safe, self._library)
        self._library[unused] = graph_ir.to_function_def(needed, unused, self._library)
        return unused

    def _add_node(self, op: str, name: str, inputs: list[Value], controls: Iterable[str]) -> Node:
        from tensorflow.core.framework.node_def_pb2 import NodeDef

        unused = graph_ir.unused_name(name, self._nodes)
        node = Node(unused, NodeDef(op=op), inputs, list(dict.fromkeys(controls)))
        self._nodes[unused] = node
        return node

    def _finish_node(self, node: Node, results: list[int], functions: Iterable[str]) -> None:
        """Choose the stateless op where nothing in the functions is stateful."""
        if not any(self._library[name].signature.is_stateful for name in functions):
            node.definition.op = f"Stateless{node.definition.op}"
        for index, dtype in enumerate(results):
            self._types[Value(node.name, index)] = dtype

    def _resolve(self, value: Value) -> Value:
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def _replace(self, replaced: Mapping[Value, Value]) -> None:
        """Let all nodes take other values in the place of some."""
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
    """Return the graph without the nodes that no result depends on."""
    needed: set[str] = set()
    pending = [*(value.producer for value in graph.results), *graph.control_outputs]
    while pending:
        name = pending.pop()
        if name not in needed and name in graph.nodes:
            needed.add(name)
            pending.extend(graph_ir.predecessors(graph.nodes[name]))
    nodes = {name: node for name, node in graph.nodes.items() if name in needed}
    return dataclasses.replace(graph, nodes=nodes)
