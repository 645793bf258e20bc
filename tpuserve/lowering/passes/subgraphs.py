"""Extracts the nodes that compute some values of a graph, and makes them the body of a function."""

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value


@dataclass(frozen=True)
class Subgraph:
    """The nodes that compute some values.

    Attributes:
      nodes: Name → node.
      results: The computed values.
      inputs: Value from outside of the subgraph → index of the function's argument for it.
      entered: Names of the Enter nodes that bring values from outside of a loop.
      stopped: Names of the nodes outside of the subgraph whose outputs its nodes take.
    """

    nodes: Mapping[str, Node]
    results: tuple[Value, ...]
    inputs: Mapping[Value, int]
    entered: tuple[str, ...]
    stopped: tuple[str, ...]

    @property
    def is_closed(self) -> bool:
        """Whether the nodes take only values of `inputs`, of `nodes` and of `entered`."""
        return all(
            value in self.inputs or value.producer in self.nodes or value.producer in self.entered
            for value in self._taken()
        )

    @property
    def arguments(self) -> set[int]:
        """The indices of the arguments that the nodes or the results take."""
        return {self.inputs[value] for value in self._taken() if value in self.inputs}

    def _taken(self) -> Iterator[Value]:
        yield from self.results
        for node in self.nodes.values():
            yield from node.inputs

    def renumber(self, numbers: Mapping[int, int]) -> "Subgraph":
        """Return the subgraph with new indices of its arguments: old index → new index."""
        inputs = {value: numbers[index] for value, index in self.inputs.items() if index in numbers}
        return dataclasses.replace(self, inputs=inputs)

    def to_graph(
        self, arguments: Sequence[int], entered: Mapping[str, int], passed: Iterable[int]
    ) -> GraphIR:
        """Return the subgraph as the body of a function.

        Args:
          arguments: DataType enum values of the function's arguments.
          entered: Name of an Enter → index of the argument that replaces its output.
          passed: Indices of arguments that the function returns unchanged, after the results.
        """
        names = [
            graph_ir.unused_name(f"argument_{index}", self.nodes) for index in range(len(arguments))
        ]
        replaced = {value: Value(names[index]) for value, index in self.inputs.items()}
        replaced |= {Value(name): Value(names[index]) for name, index in entered.items()}
        nodes = [
            dataclasses.replace(
                node,
                inputs=[replaced.get(value, value) for value in node.inputs],
                controls=[name for name in node.controls if name in self.nodes],
            )
            for node in self.nodes.values()
        ]
        return GraphIR(
            graph_ir.topological_order(nodes),
            dict(zip(names, arguments, strict=True)),
            results=[
                *(replaced.get(value, value) for value in self.results),
                *(Value(names[index]) for index in passed),
            ],
        )


def extract_subgraph(
    nodes: Mapping[str, Node],
    results: Sequence[Value],
    inputs: Mapping[Value, int],
    stop: Container[str],
    stop_ops: Container[str] = (),
) -> Subgraph:
    """Return the nodes that some values depend on; the search ends at given nodes.

    Args:
      nodes: Name → node.
      results: The values.
      inputs: Output of a node of `stop` → index of the function's argument for it.
      stop: Names of nodes at which the search ends; they are not part of the subgraph.
      stop_ops: Op types at which the search ends as well.
    """
    subgraph: dict[str, Node] = {}
    entered: dict[str, None] = {}
    stopped: dict[str, None] = {}
    pending = [value.producer for value in results]
    while pending:
        name = pending.pop()
        if name in subgraph or name not in nodes:
            continue
        node = nodes[name]
        if name in stop or node.op in stop_ops:
            stopped[name] = None
        elif node.op == "Enter":
            entered[name] = None
        else:
            subgraph[name] = node
            pending.extend(graph_ir.predecessors(node))
    return Subgraph(subgraph, tuple(results), inputs, tuple(entered), tuple(stopped))
