"""Functions that TensorFlow's eager runtime knows for a while."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from tensorflow.core.framework.graph_pb2 import GraphDef

from tpuserve.lowering.ir.function_renaming import rename_functions
from tpuserve.tensorflow_internals import eager_context

_numbers = itertools.count()


@contextmanager
def register_functions(graph: GraphDef) -> Iterator[None]:
    """Within it, the eager runtime has the functions of a graph, under new names.

    A traced function does not bring along what an imported graph calls, such as the bodies of its
    loops: the runtime has to know that by itself. Function names are unique in a graph alone, so
    the graph's are changed, in place, to names that no other has.

    Args:
      graph: to be imported and traced within.
    """
    number = next(_numbers)
    names = [each.signature.name for each in graph.library.function]
    rename_functions(graph, {each: f"{each}_compiled_{number}" for each in names})
    runtime = eager_context.context()
    known: list[str] = []
    try:
        for each in graph.library.function:
            runtime.add_function_def(each)
            known.append(each.signature.name)
        yield
    finally:
        for name in known:
            runtime.remove_function(name)
