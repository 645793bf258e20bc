"""Visits the graphs of all functions that a tf.Graph contains."""

from collections.abc import Iterator
from typing import Any

from tpuserve import tensorflow_internals


def walk_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and the graphs of all functions in its library, recursively, each once."""
    visited = set()
    pending = [graph]
    while pending:
        current = pending.pop(0)
        if id(current) in visited:
            continue
        visited.add(id(current))
        yield current
        # Skip functions that TensorFlow's Defun created: they have no graph.
        functions = tensorflow_internals.get_graph_functions(current).values()
        graphs = (getattr(function, "graph", None) for function in functions)
        pending += [function_graph for function_graph in graphs if function_graph is not None]
