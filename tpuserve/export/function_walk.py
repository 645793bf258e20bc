"""Walking from a graph into the functions that it calls."""

from collections.abc import Iterator
from typing import Any

from tpuserve import tensorflow_internals


def walk_graphs(graph: Any) -> Iterator[Any]:
    """A graph and the graphs of all functions in its library, as deep as they go, each once."""
    seen = set()
    pending = [graph]
    while pending:
        each = pending.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        # What TensorFlow's Defun made has no graph to look at.
        functions = tensorflow_internals.get_graph_functions(each).values()
        called = (getattr(function, "graph", None) for function in functions)
        pending += [graph for graph in called if graph is not None]
