"""Registers the functions of a graph with TensorFlow's eager runtime for a limited time."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.lowering.ir.function_renaming import rename_functions
from tpuserve.tensorflow_internals import eager_context

_numbers = itertools.count()


@contextmanager
def register_functions(graph: GraphDef) -> Iterator[None]:
    """Register the functions of a graph with TensorFlow's eager runtime during a with block.

    If a tf.function imports the graph, the functions that the graph calls, such as bodies of loops,
    do not become part of the tf.function.
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
