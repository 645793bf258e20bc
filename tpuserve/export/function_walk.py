"""Iterates over a tf.Graph and the graphs of all functions that it contains."""

from collections.abc import Iterator
from typing import Any

from tpuserve import tensorflow_internals


def walk_graphs(graph: Any) -> Iterator[Any]:
    """Yield a tf.Graph and the FuncGraphs of all functions in it, nested ones too, each once."""
    visited = set()
    pending = [graph]
    while pending:
        current = pending.pop(0)
        if id(current) in visited:
            continue
        visited.add(id(current))
        yield current
        # A function that TensorFlow's Defun created has only a FunctionDef and no FuncGraph. Skip
        # it.
        functions = tensorflow_internals.get_graph_functions(current).values()
        graphs = (getattr(function, "graph", None) for function in functions)
        pending += [function_graph for function_graph in graphs if function_graph is not None]
