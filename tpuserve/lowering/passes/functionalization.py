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
from tpuserve.lowering.passes import version_1_loops
from tpuserve.lowering.passes.subgraphs import Subgraph
from tpuserve.lowering.passes.version_1_branches import Branch, find_branch
from tpuserve.lowering.passes.version_1_loops import Loop, find_loop


@dataclass(frozen=True)
class FunctionalGraph:
    """A graph with While and If ops in place of the control flow of TensorFlow 1, where possible.

    Attributes:
      graph: The graph. The nodes of the replaced control flow are still there, but nothing that the
        results need depends on them.
      replaced: Output of a loop or branch → the output of the While or If that takes its place.
    """

    graph: GraphIR
    replaced: Mapping[Value, Value]


def functionalize(graph: GraphIR, library: "dict[str, Any]") -> FunctionalGraph:
    """Replace the loops and branches of TensorFlow 1 by While and If, the innermost first.

    Loops and branches of TensorFlow 1 consist of Switch, Merge, Enter and other ops. Where these
    ops are connected in another way than TensorFlow 1 connects them, they are not changed.

    Args:
      graph: A graph that calls no function with loops or branches of TensorFlow 1.
      library: Function name → function; the functions of loops and branches are added.
    """
    if not any(node.op in version_1_loops.OPS for node in graph.nodes.values()):
        return FunctionalGraph(graph, {})
    rewriter = _Rewriter(graph, library)
    rewriter.replace_loops()
    rewriter.replace_branches()
    return FunctionalGraph(rewriter.finish(), rewriter.replaced)


def functionalize_function(name: str, library: "dict[str, Any]") -> None:
    """Replace the control flow of TensorFlow 1 in the body of a function, in place.

    Args:
      name: Name of the function.
      library: Function name → function; the functions of loops and branches are added.
    """
    function = library[name]
    if any(node.op in version_1_loops.OPS for node in function.node_def):
        body = functionalize(graph_ir.from_function_def(function, library), library).graph
        graph_ir.replace_function_body(function, _prune(body), library)


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
        """Return the rewritten graph, with its nodes in topological order."""
        return dataclasses.replace(
            self._graph,
            nodes=graph_ir.topological_order(self._nodes.values()),
            results=[self._resolve(value) for value in self._graph.results],
        )

    def replace_loops(self) -> None:
        """Replace each loop whose condition and body have no other loop, until no loop is left."""
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
        """Replace each branch whose two sides have no other branch, until no branch is left."""
        while branch := find_branch(self._nodes, self.replaced):
            self._replace_branch(branch)

    def _replace_loop(self, loop: Loop) -> None:
        """Add a While that takes the place of a loop."""
        # The Enter nodes of values from outside that the loop reads and does not change. The While
        # passes these values on from one iteration to the next.
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
            *(self._resolve(variable.initial) for variable in loop.variables),
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
        """Add a subgraph to the library, with functional control flow; return its name.

        Args:
          name: A name for the function.
          subgraph: The nodes.
          arguments: DataType enum values of the arguments.
          entered: Name of an Enter → index of the argument that takes its place.
          passed: Indices of the arguments that are returned too, after the results.
        """
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
        """Make a While or If stateless if its functions are stateless; record its output types."""
        if not any(self._library[name].signature.is_stateful for name in functions):
            node.definition.op = f"Stateless{node.definition.op}"
        for index, dtype in enumerate(results):
            self._types[Value(node.name, index)] = dtype

    def _resolve(self, value: Value) -> Value:
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def _replace(self, replaced: Mapping[Value, Value]) -> None:
        """Replace values in the inputs of all nodes, and their producers in the control inputs."""
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
    """Return the graph without the nodes of replaced loops and branches."""
    results = [value.producer for value in graph.results]
    needed = graph_ir.find_needed(graph.nodes, [*results, *graph.control_outputs])
    removed: set[str] = set()
    num_removed = -1
    # The nodes of a loop form a cycle, which has no topological order. So repeat the search until
    # it finds no more nodes.
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
