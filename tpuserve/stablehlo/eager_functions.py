"""Temporary registration of a graph's functions with TensorFlow's eager runtime."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.lowering.ir.function_renaming import rename_functions
from tpuserve.tensorflow_internals import eager_context

_numbers = itertools.count()


@contextmanager
def register_functions(graph: GraphDef) -> Iterator[None]:
    """Register a graph's functions with TensorFlow's eager runtime, inside of a with block.

    When a tf.function imports a graph, the functions that the graph calls, such as loop bodies, do
    not become part of the tf.function; the eager runtime must know them. Function names are unique
    within a graph only, so the functions of the graph are first renamed, in place, to names that
    are unique in the process.

    Args:
      graph: The graph that is imported and traced inside the with block.
    """
    number = next(_numbers)
    names = [function.signature.name for function in graph.library.function]
    rename_functions(graph, {name: f"{name}_compiled_{number}" for name in names})
    runtime = eager_context.context()
    registered: list[str] = []
    try:
        for function in graph.library.function:
            runtime.add_function_def(function)
            registered.append(function.signature.name)
        yield
    finally:
        for name in registered:
            runtime.remove_function(name)
