"""A graph cut into pieces that can be built one after the other.

To build one, TensorFlow holds on to Python's lock for as long as it takes, and a server answers
nobody meanwhile: so each is small.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

# About a millisecond's work.
_NODES = 48
_BYTES = 1 << 18
# Each piece is compared with all that is there already.
_MOST_PIECES = 400


@dataclass(frozen=True)
class GraphSegment:
    """Some nodes of a graph, or functions of its library.

    Attributes:
      content: a serialised GraphDef.
      inputs: node and output, of earlier pieces, that its nodes read.
      controls: nodes of earlier pieces that its nodes come after.
      retained: its nodes that will be asked for, by later pieces or from outside.
    """

    content: bytes
    inputs: tuple[tuple[str, int], ...] = ()
    controls: tuple[str, ...] = ()
    retained: tuple[str, ...] = ()


def split_graph(graph: Any, asked_for: Collection[str]) -> list[GraphSegment]:
    """The pieces of a GraphDef: functions first, and every node after those that it reads.

    Args:
      asked_for: nodes that will be wanted from outside.
    """
    nodes = {node.name: node for node in graph.node}
    groups = list(_node_groups(nodes))
    of_node = {name: index for index, group in enumerate(groups) for name in group}
    read: list[tuple[set[tuple[str, int]], set[str]]] = []
    kept: list[set[str]] = [{name for name in group if name in asked_for} for group in groups]
    for index, group in enumerate(groups):
        inputs: set[tuple[str, int]] = set()
        controls: set[str] = set()
        for name in group:
            for each in nodes[name].input:
                source, output = _split(each)
                place = of_node.get(source, index)
                if place == index:
                    continue
                kept[place].add(source)
                if output < 0:
                    controls.add(source)
                else:
                    inputs.add((source, output))
        read.append((inputs, controls))
    found = [GraphSegment(each.SerializeToString()) for each in _libraries(graph)]
    for group, (inputs, controls), names in zip(groups, read, kept, strict=True):
        part = type(graph)(versions=graph.versions)
        part.node.extend(nodes[name] for name in group)
        content = part.SerializeToString()
        found.append(
            GraphSegment(
                content, tuple(sorted(inputs)), tuple(sorted(controls)), tuple(sorted(names))
            )
        )
    return found


def _libraries(graph: Any) -> Iterator[Any]:
    part, size = type(graph)(versions=graph.versions), 0
    for function in graph.library.function:
        part.library.function.add().CopyFrom(function)
        size += function.ByteSize()
        if size > _BYTES // 4:
            yield part
            part, size = type(graph)(versions=graph.versions), 0
    # They name functions, so those come first.
    part.library.gradient.extend(graph.library.gradient)
    part.library.registered_gradients.extend(graph.library.registered_gradients)
    if part.HasField("library"):
        yield part


def _node_groups(nodes: dict[str, Any]) -> Iterator[list[str]]:
    """Names of nodes, each group with nothing in it that a later one makes."""
    most = max(_NODES, len(nodes) // _MOST_PIECES)
    group: list[str] = []
    size = 0
    for loop in _in_order(nodes):
        added = sum(nodes[name].ByteSize() for name in loop)
        if group and (len(group) + len(loop) > most or size + added > _BYTES):
            yield group
            group, size = [], 0
        group += loop
        size += added
    if group:
        yield group


def _in_order(nodes: dict[str, Any]) -> Iterator[list[str]]:
    """Each node after those that it reads; those that read one another in a circle together.

    Tarjan's algorithm, which finds a node's circle when all that it reads is found.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    is_waiting: set[str] = set()
    for root in nodes:
        if root in number:
            continue
        path = [(root, iter(_sources(nodes, root)))]
        number[root] = lowest[root] = len(number)
        waiting.append(root)
        is_waiting.add(root)
        while path:
            name, sources = path[-1]
            for source in sources:
                if source not in number:
                    number[source] = lowest[source] = len(number)
                    waiting.append(source)
                    is_waiting.add(source)
                    path.append((source, iter(_sources(nodes, source))))
                    break
                if source in is_waiting:
                    lowest[name] = min(lowest[name], number[source])
            else:
                path.pop()
                if path:
                    reader = path[-1][0]
                    lowest[reader] = min(lowest[reader], lowest[name])
                if lowest[name] == number[name]:
                    start = waiting.index(name) if waiting[-1] != name else len(waiting) - 1
                    circle = waiting[start:]
                    del waiting[start:]
                    is_waiting.difference_update(circle)
                    yield circle


def _sources(nodes: dict[str, Any], name: str) -> list[str]:
    """What a node cannot be built before."""
    found = [_split(each)[0] for each in nodes[name].input]
    # Once there is an "a/b", TensorFlow lets no node be named "a".
    scope, slash, _ = name.rpartition("/")
    while slash:
        found.append(scope)
        scope, slash, _ = scope.rpartition("/")
    return [each for each in found if each in nodes]


def _split(tensor: str) -> tuple[str, int]:
    """A node and which of its outputs; -1 for all that comes before it."""
    if tensor.startswith("^"):
        return tensor[1:], -1
    name, _, output = tensor.partition(":")
    return name, int(output or 0)
