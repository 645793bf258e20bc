"""What of a graph under construction is placed on a TPU."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve import tensorflow_internals
from tpuserve.errors import ExportError
from tpuserve.export.function_walk import walk_graphs
from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    HOST_ATTRIBUTE,
    REPLICATE_METADATA,
    TPU_CALL,
)

# XLA leaves assertions out, and with them the text that they would show.
_LEFT_OUT = ("Assert", "Const")


def has_tpu_part(graph: Any) -> bool:
    """Whether anything in a graph, or in a function that it holds, is placed on a TPU."""
    marks = (TPU_CALL, REPLICATE_METADATA)
    for each in walk_graphs(graph):
        if any(operation.type in marks for operation in each.get_operations()):
            return True
        for function in tensorflow_internals.get_graph_functions(each).values():
            # TensorFlow's Defun makes functions without a graph.
            if getattr(function, "graph", None) is None and any(
                node.op in marks for node in function.cached_definition.node_def
            ):
                return True
    return False


def check_no_strings_on_tpu(graph: Any, title: str) -> None:
    """Refuses strings on the TPU: those that one of its ops takes or gives.

    Args:
      graph: the one that calls the TPU computations.
      title: whose they are, for the message.

    Raises:
      ExportError: names the first such op.
    """
    for operation in _operations_on_tpu(graph):
        if _has_strings(operation):
            raise ExportError(
                f"{title} has strings on the TPU, in {operation.type} {operation.name!r}; a TPU "
                f"computes with numbers only. Wrap what handles strings in "
                f"tf.compat.v1.tpu.outside_compilation, or put the numeric part alone on the TPU, "
                f"where use_tpu is True."
            )


def _operations_on_tpu(graph: Any) -> Iterator[Any]:
    for each in walk_graphs(graph):
        for operation in each.get_operations():
            if operation.type == TPU_CALL:
                for computation in _called(operation):
                    marked = (
                        inner
                        for inner in computation.get_operations()
                        # Looking at a large constant copies it.
                        if inner.type not in _LEFT_OUT and CLUSTER_ATTRIBUTE in inner.node_def.attr
                    )
                    yield from _with_inner(marked)


def _with_inner(operations: Iterable[Any]) -> Iterator[Any]:
    """Operations of the TPU and all that they call, but for what the host does for them."""
    seen: set[int] = set()
    pending = list(operations)
    while pending:
        operation = pending.pop(0)
        if HOST_ATTRIBUTE in operation.node_def.attr:
            continue
        yield operation
        for called in _called(operation):
            if id(called) not in seen:
                seen.add(id(called))
                pending += called.get_operations()


def _called(operation: Any) -> Iterator[Any]:
    names = []
    for attribute in operation.node_def.attr.values():
        names += [attribute.func.name, *(each.name for each in attribute.list.func)]
    for name in filter(None, names):
        graph = getattr(
            tensorflow_internals.get_graph_function(operation.graph, name), "graph", None
        )
        if graph is not None:
            yield graph


def _has_strings(operation: Any) -> bool:
    if operation.type in _LEFT_OUT:
        return False
    if operation.type == "Identity":
        # tpu.rewrite hands every result on through one, those of host parts too.
        (result,) = operation.outputs
        return result.dtype == tf.string and _goes_out(result) and not _is_of_host(operation)
    return any(each.dtype == tf.string for each in (*operation.inputs, *operation.outputs))


def _goes_out(result: Any) -> bool:
    is_returned = any(each is result for each in getattr(result.graph, "outputs", ()))
    return is_returned or any(
        CLUSTER_ATTRIBUTE not in each.node_def.attr for each in result.consumers()
    )


def _is_of_host(operation: Any) -> bool:
    while operation.type == "Identity" and HOST_ATTRIBUTE not in operation.node_def.attr:
        operation = operation.inputs[0].op
    return HOST_ATTRIBUTE in operation.node_def.attr
