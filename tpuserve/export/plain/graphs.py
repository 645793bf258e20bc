"""Walking from a traced function into those that it calls."""

from collections.abc import Iterator
from typing import Any


def with_called(graph: Any) -> Iterator[Any]:
    """A graph and the graphs of all functions in its library, as deep as they go."""
    yield graph
    for each in graph._functions.values():
        if getattr(each, "graph", None) is not None:
            yield from with_called(each.graph)
