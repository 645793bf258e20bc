"""Extracts the nodes that compute some values of a graph, to turn them into a function.

The pass that replaces the loops and branches of TensorFlow 1 creates functions in this way.
"""

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value


@dataclass(frozen=True)
class Subgraph:
    """Nodes of a graph that are to become the body of a function.

    Attributes:
      inputs: Node output from outside → index of the argument by which the function receives it.
      entered: Names of the Enter nodes (of a TensorFlow 1 loop) whose outputs the nodes use.
      awaited: Names of the nodes that must run even if no result depends on them.
    """

    nodes: Mapping[str, Node]
    results: tuple[Value, ...]
    inputs: Mapping[Value, int]
    entered: tuple[str, ...]
    stopped: tuple[str, ...]
    awaited: tuple[str, ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the nodes use no outside tensors except `inputs` and outputs of Enter nodes.

        Only then can the nodes be turned into a function.
        """
        return all(
            value in self.inputs or value.producer in self.nodes or value.producer in self.entered
            for value in self._used_values()
        )

    @property
    def arguments(self) -> set[int]:
        """The indices of the function's arguments that are used."""
        return {self.inputs[value] for value in self._used_values() if value in self.inputs}

    def _used_values(self) -> Iterator[Value]:
        yield from self.results
        for node in self.nodes.values():
            yield from node.inputs

    def renumber(self, numbers: Mapping[int, int]) -> "Subgraph":
        """Return a copy in which the function's arguments have other indices.

        Args:
          numbers: Old index → new index. Arguments that are not listed are removed.
        """
        inputs = {value: numbers[index] for value, index in self.inputs.items() if index in numbers}
        return dataclasses.replace(self, inputs=inputs)

    def to_graph(
        self, arguments: Sequence[int], entered: Mapping[str, int], passed: Iterable[int]
    ) -> GraphIR:
        """Return the subgraph as the body of a function.

        Args:
          entered: Name of an Enter node → index of the argument that replaces its output.
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
            control_outputs=[name for name in self.awaited if name in self.nodes],
        )


def extract_subgraph(
    nodes: Mapping[str, Node],
    results: Sequence[Value],
    inputs: Mapping[Value, int],
    stop: Container[str],
    stop_ops: Container[str] = (),
    awaited: Iterable[str] = (),
) -> Subgraph:
    """Extract the nodes that some node outputs depend on.

    Args:
      inputs: Output of a node in `stop` → index of the argument by which the function receives it.
      stop: Names of nodes that do not become part of the subgraph. The search does not continue to
        their inputs. Enter nodes are treated in the same way.
      awaited: Names of nodes that must run even if no result depends on them.
    """
    subgraph: dict[str, Node] = {}
    entered: dict[str, None] = {}
    stopped: dict[str, None] = {}
    awaited = tuple(dict.fromkeys(awaited))
    pending = [*(value.producer for value in results), *awaited]
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
    return Subgraph(subgraph, tuple(results), inputs, tuple(entered), tuple(stopped), awaited)
