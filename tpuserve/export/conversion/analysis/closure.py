"""Solves the maximum-weight closure problem by a minimum cut.

A closure is a set of items that, for each of its items, also contains all items which that item
requires.

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
