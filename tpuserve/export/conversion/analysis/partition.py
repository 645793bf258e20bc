"""Chooses the nodes of a signature that run on the TPU; the host runs the others."""

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tpuserve.graph.reachability import CREATED_IN_EACH_RUN
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Value
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

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


Item = TypeVar("Item")
_UNLIMITED = 1 << 60


def find_largest_closure(
    weights: Mapping[Item, int], requirements: Iterable[tuple[Item, Item]]
) -> set[Item]:
    """Choose the items with the largest sum of weights that fulfil all requirements.

    Args:
      requirements: Pairs (first, second): if the first item is chosen, the second must be chosen.

    Returns:
      The chosen items. If several choices have the largest sum, the choice with the fewest items
      is returned.
    """
    numbers = {item: number for number, item in enumerate(weights)}
    network = _Network(len(numbers) + 2)
    source, sink = len(numbers), len(numbers) + 1
    for item, weight in weights.items():
        if weight > 0:
            network.add(source, numbers[item], weight)
        elif weight < 0:
            network.add(numbers[item], sink, -weight)
    for first, second in requirements:
        network.add(numbers[first], numbers[second], _UNLIMITED)
    network.saturate(source, sink)
    reached = network.levels(source)
    return {item for item, number in numbers.items() if reached[number] >= 0}


class _Network:
    """A flow network: its nodes are numbers, and its edges have residual capacities."""

    def __init__(self, size: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(size)]
        self._heads: list[int] = []
        self._capacities: list[int] = []

    def add(self, tail: int, head: int, capacity: int) -> None:
        for start, end, limit in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._heads))
            self._heads.append(end)
            self._capacities.append(limit)

    def levels(self, source: int) -> list[int]:
        """Return the distance of each node from the source; -1 if the node is not reachable."""
        levels = [-1] * len(self._edges)
        levels[source] = 0
        pending = deque([source])
        while pending:
            tail = pending.popleft()
            for edge in self._edges[tail]:
                if self._capacities[edge] and levels[self._heads[edge]] < 0:
                    levels[self._heads[edge]] = levels[tail] + 1
                    pending.append(self._heads[edge])
        return levels

    def saturate(self, source: int, sink: int) -> None:
        """Compute a maximum flow from the source to the sink; update the residual capacities."""
        while (levels := self.levels(source))[sink] >= 0:
            positions = [0] * len(self._edges)
            while self._send(source, sink, levels, positions):
                pass

    def _send(self, source: int, sink: int, levels: list[int], positions: list[int]) -> bool:
        """Send flow along one shortest path from the source to the sink."""
        path: list[int] = []
        tail = source
        while tail != sink:
            edges = self._edges[tail]
            while positions[tail] < len(edges):
                edge = edges[positions[tail]]
                if self._capacities[edge] and levels[self._heads[edge]] == levels[tail] + 1:
                    break
                positions[tail] += 1
            else:
                if not path:
                    return False
                tail = self._heads[path.pop() ^ 1]
                positions[tail] += 1
                continue
            path.append(edge)
            tail = self._heads[edge]
        flow = min(self._capacities[edge] for edge in path)
        for edge in path:
            self._capacities[edge] -= flow
            self._capacities[edge ^ 1] += flow
        return True


# Types of the ops that do most of a model's work, such as matrix multiplications. To measure the
# work on the TPU, each counts as much as `_HEAVY` other ops.
_HEAVY_OPS = re.compile(
    r"\w*(MatMul|Conv|Einsum|While|If|XlaCallModule|LSTM|GRU|FFT|Cholesky|Svd|Qr)\w*"
)
_HEAVY, _LIGHT = 1000, 1


def find_tpu_nodes(
    graph: GraphIR, names: Collection[str], host_only: Collection[str], library: "Library"
) -> set[str]:
    """Choose the nodes to run on the TPU, so that the TPU does as much of the work as possible.

    All nodes on the TPU become one computation, so no result of the TPU may go to the host and
    return to the TPU.

    Args:
      names: Names of the nodes to divide. Nodes of which host and TPU both get a copy, such as
        constants, are not among them.
    """
    edges = [
        (producer, name)
        for name in names
        for producer in graph_ir.predecessors(graph.nodes[name])
        if producer in names
    ]
    tied = find_ties(graph, names, graph_ir.value_types(graph, library))
    before = _reach(host_only, [(head, tail) for tail, head in [*edges, *tied]])
    after = _reach(host_only, [*edges, *tied])
    weights: dict[tuple[str, bool], int] = {}
    for name in names:
        weight = 0 if name in host_only else _weigh(graph, name)
        if name in before:
            weights[name, False] = weight
        if name in after:
            weights[name, True] = -weight
    requirements = [
        ((tail, is_behind), (head, is_behind))
        for tail, head in [*edges, *tied]
        for is_behind in (False, True)
        if (tail, is_behind) in weights and (head, is_behind) in weights
    ]
    for name in before & after:
        requirements.append(((name, True), (name, False)))
        if name in host_only:
            requirements.append(((name, False), (name, True)))
    chosen = find_largest_closure(weights, requirements)
    return {
        name
        for name in names
        if name not in host_only
        and (name not in before or (name, False) in chosen)
        and (name, True) not in chosen
    }


def _weigh(graph: GraphIR, name: str) -> int:
    return _HEAVY if _HEAVY_OPS.fullmatch(graph.nodes[name].op) else _LIGHT


def _reach(start: Collection[str], edges: list[tuple[str, str]]) -> set[str]:
    heads: dict[str, list[str]] = {}
    for tail, head in edges:
        heads.setdefault(tail, []).append(head)
    return find_reachable(start, lambda name: heads.get(name, ()))
