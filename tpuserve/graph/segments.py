"""Splits a graph into segments: small parts that a server imports one after the other.

TensorFlow holds Python's global interpreter lock (GIL) while it imports a GraphDef, so that the
server answers no request.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

# The largest number of nodes and of bytes in one segment. The import of such a segment takes about
# a millisecond.
_MAX_NODES = 48
_MAX_BYTES = 1 << 18
# The approximate largest number of segments of a graph. TensorFlow compares each segment with all
# nodes that were imported before, so many segments would be slow to import.
_MAX_SEGMENTS = 400


@dataclass(frozen=True)
class GraphSegment:
    """A part of a graph that is imported by one call: some nodes, or some functions.

    Attributes:
      retained_nodes: names of nodes in this segment that are needed after its import: by later
        segments, or because they are in the argument `retained_nodes` of `split_graph`.
    """

    content: bytes
    inputs: tuple[tuple[str, int], ...] = ()
    controls: tuple[str, ...] = ()
    retained_nodes: tuple[str, ...] = ()


def split_graph(graph: Any, retained_nodes: Collection[str]) -> list[GraphSegment]:
    """Split a graph into segments, to be imported in the order of the returned list.

    The segments that hold functions come first.

    Args:
      retained_nodes: names of the nodes that are needed after the import of the whole graph, such
        as feeds and fetches.
    """
    segments = [GraphSegment(part.SerializeToString()) for part in _split_library(graph)]
    nodes = {node.name: node for node in graph.node}
    groups = list(_group_nodes(nodes))
    group_of = {name: index for index, group in enumerate(groups) for name in group}
    references = [_earlier_references(group, nodes, group_of) for group in groups]
    retained = [{name for name in group if name in retained_nodes} for group in groups]
    for inputs, controls in references:
        for name in {*controls, *(source for source, _ in inputs)}:
            retained[group_of[name]].add(name)
    for group, (inputs, controls), names in zip(groups, references, retained, strict=True):
        part = type(graph)(versions=graph.versions)
        part.node.extend(nodes[name] for name in group)
        segments.append(
            GraphSegment(
                part.SerializeToString(),
                tuple(sorted(inputs)),
                tuple(sorted(controls)),
                tuple(sorted(names)),
            )
        )
    return segments


def _earlier_references(
    group: list[str], nodes: dict[str, Any], group_of: dict[str, int]
) -> tuple[set[tuple[str, int]], set[str]]:
    """Return the tensors and the control inputs that a segment takes from earlier segments."""
    own_index = group_of[group[0]]
    inputs: set[tuple[str, int]] = set()
    controls: set[str] = set()
    for name in group:
        for reference in nodes[name].input:
            source, output = _split_reference(reference)
            if group_of.get(source, own_index) == own_index:
                continue
            if output < 0:
                controls.add(source)
            else:
                inputs.add((source, output))
    return inputs, controls


def _split_library(graph: Any) -> Iterator[Any]:
    """Yield small GraphDefs without nodes, which together hold the function library of a graph."""
    part, num_bytes = type(graph)(versions=graph.versions), 0
    for function in graph.library.function:
        part.library.function.add().CopyFrom(function)
        num_bytes += function.ByteSize()
        if num_bytes > _MAX_BYTES // 4:
            yield part
            part, num_bytes = type(graph)(versions=graph.versions), 0
    # Put the gradient definitions into the last GraphDef: the functions to which they refer must be
    # imported before them.
    part.library.gradient.extend(graph.library.gradient)
    part.library.registered_gradients.extend(graph.library.registered_gradients)
    if part.HasField("library"):
        yield part


def _group_nodes(nodes: dict[str, Any]) -> Iterator[list[str]]:
    """Divide nodes into segments of limited size; no node needs a node of a later segment."""
    max_nodes = max(_MAX_NODES, len(nodes) // _MAX_SEGMENTS)
    group: list[str] = []
    num_bytes = 0
    for component in _strongly_connected_components(nodes):
        component_bytes = sum(nodes[name].ByteSize() for name in component)
        is_full = (
            len(group) + len(component) > max_nodes or num_bytes + component_bytes > _MAX_BYTES
        )
        if group and is_full:
            yield group
            group, num_bytes = [], 0
        group += component
        num_bytes += component_bytes
    if group:
        yield group


def _strongly_connected_components(nodes: dict[str, Any]) -> Iterator[list[str]]:
    """Group nodes so that nodes in a cycle are together, and sort the groups topologically."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    is_on_stack: set[str] = set()
    for root in nodes:
        if root in number:
            continue
        path = [(root, iter(_prerequisites(nodes, root)))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        is_on_stack.add(root)
        while path:
            name, sources = path[-1]
            for source in sources:
                if source not in number:
                    number[source] = lowest[source] = len(number)
                    stack.append(source)
                    is_on_stack.add(source)
                    path.append((source, iter(_prerequisites(nodes, source))))
                    break
                if source in is_on_stack:
                    lowest[name] = min(lowest[name], number[source])
            else:
                path.pop()
                if path:
                    reader = path[-1][0]
                    lowest[reader] = min(lowest[reader], lowest[name])
                if lowest[name] == number[name]:
                    start = stack.index(name) if stack[-1] != name else len(stack) - 1
                    component = stack[start:]
                    del stack[start:]
                    is_on_stack.difference_update(component)
                    yield component


def _prerequisites(nodes: dict[str, Any], name: str) -> list[str]:
    sources = [_split_reference(reference)[0] for reference in nodes[name].input]
    # Import node "a" before node "a/b": once a graph has "a/b", TensorFlow refuses the name "a".
    scope, slash, _ = name.rpartition("/")
    while slash:
        sources.append(scope)
        scope, slash, _ = scope.rpartition("/")
    return [source for source in sources if source in nodes]


def _split_reference(reference: str) -> tuple[str, int]:
    """Split an input of a NodeDef into node name and output index; the index is -1 for "^node"."""
    if reference.startswith("^"):
        return reference[1:], -1
    name, _, output = reference.partition(":")
    return name, int(output or 0)
