"""Finds the closure of the largest weight: a set of items that contains all that its items require.

Source: J.-C. Picard, "Maximal closure of a graph and applications to combinatorial problems",
Management Science 22 (1976). The minimal cut is found as in E. A. Dinic (1970).
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

Item = TypeVar("Item")

_UNLIMITED = 1 << 60


def find_largest_closure(
    weights: Mapping[Item, int], requirements: Iterable[tuple[Item, Item]]
) -> set[Item]:
    """Choose items so that the sum of their weights is as large as possible.

    Args:
      weights: Item → weight, which may be negative.
      requirements: Pairs (first, second): if the first item is chosen, so is the second.

    Returns:
      The chosen items. If several choices have the largest sum, the choice with the fewest items.
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
    """A flow network with the residual capacities of its edges."""

    def __init__(self, size: int) -> None:
        self._edges: list[list[int]] = [[] for _ in range(size)]
        self._heads: list[int] = []
        self._capacities: list[int] = []

    def add(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge with an even index, and its reverse, of capacity 0, with the next index."""
        for start, end, limit in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._heads))
            self._heads.append(end)
            self._capacities.append(limit)

    def levels(self, source: int) -> list[int]:
        """Return the distance of each node from the source in edges; -1 if it is not reachable.

        Only edges with residual capacity count.
        """
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
        """Send as much flow as possible from the source to the sink."""
        while (levels := self.levels(source))[sink] >= 0:
            positions = [0] * len(self._edges)
            while self._send(source, sink, levels, positions):
                pass

    def _send(self, source: int, sink: int, levels: list[int], positions: list[int]) -> bool:
        """Send flow along one shortest path to the sink; return whether there was such a path."""
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
