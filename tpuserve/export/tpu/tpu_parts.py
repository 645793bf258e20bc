"""Finds the operations of a tf.Graph that run on a TPU."""

from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve import tensorflow_internals
from tpuserve.errors import StringsOnTpu
from tpuserve.export.function_walk import walk_graphs
from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    HOST_ATTRIBUTE,
    REPLICATE_METADATA,
    TPU_CALL,
)

# Types of the ops that are not checked for strings. XLA drops assertions together with their
# messages.
_IGNORED_OPS = ("Assert", "Const")


def has_tpu_part(graph: Any) -> bool:
    """Return whether any operation of a tf.Graph, or of a function in it, runs on a TPU."""
    tpu_ops = (TPU_CALL, REPLICATE_METADATA)
    for function_graph in walk_graphs(graph):
        if any(operation.type in tpu_ops for operation in function_graph.get_operations()):
            return True
        for function in tensorflow_internals.get_graph_functions(function_graph).values():
            # `walk_graphs` skips functions that TensorFlow's Defun created, because they have no
            # FuncGraph. Search their FunctionDefs.
            if getattr(function, "graph", None) is None and any(
                node.op in tpu_ops for node in function.cached_definition.node_def
            ):
                return True
    return False


def check_no_strings_on_tpu(graph: Any, title: str) -> None:
    """Check that no op on the TPU takes or returns strings.

    Args:
      title: Name of the graph in messages, such as "signature 'serving_default'".
    """
    for operation in _operations_on_tpu(graph):
        if _has_strings(operation):
            raise StringsOnTpu(
                f"{title} has strings on the TPU, in {operation.type} {operation.name!r}; a TPU "
                f"computes with numbers only. Wrap the ops on strings in "
                f"tf.compat.v1.tpu.outside_compilation, or place only the numeric part on the TPU "
                f"if use_tpu is True. Of a Keras model, model.export(DIR) and then `tpuserve "
                f"convert DIR NEW_DIR` leave the strings on the host."
            )


def _operations_on_tpu(graph: Any) -> Iterator[Any]:
    """Yield the operations that run on the TPU in the TPU computations that a tf.Graph calls."""
    for function_graph in walk_graphs(graph):
        for operation in function_graph.get_operations():
            if operation.type == TPU_CALL:
                for computation in _called_graphs(operation):
                    if _allows_host_ops(computation):
                        continue
                    members = (
                        inner
                        for inner in computation.get_operations()
                        if inner.type not in _IGNORED_OPS
                        and CLUSTER_ATTRIBUTE in inner.node_def.attr
                    )
                    yield from _with_called_operations(members)


def _allows_host_ops(computation: Any) -> bool:
    """Return whether the host runs what a TPU cannot: with tf.config.set_soft_device_placement."""
    return any(
        operation.type == REPLICATE_METADATA and operation.get_attr("allow_soft_placement")
        for operation in computation.get_operations()
    )


def _with_called_operations(operations: Iterable[Any]) -> Iterator[Any]:
    """Yield operations and all operations of the functions that they call."""
    visited: set[int] = set()
    pending = list(operations)
    while pending:
        operation = pending.pop(0)
        if HOST_ATTRIBUTE in operation.node_def.attr:
            continue
        yield operation
        for graph in _called_graphs(operation):
            if id(graph) not in visited:
                visited.add(id(graph))
                pending += graph.get_operations()


def _called_graphs(operation: Any) -> Iterator[Any]:
    names = []
    for attribute in operation.node_def.attr.values():
        names += [attribute.func.name, *(function.name for function in attribute.list.func)]
    for name in filter(None, names):
        function = tensorflow_internals.get_graph_function(operation.graph, name)
        graph = getattr(function, "graph", None)
        if graph is not None:
            yield graph


def _has_strings(operation: Any) -> bool:
    if operation.type in _IGNORED_OPS:
        return False
    if operation.type == "Identity":
        # Ignore an Identity that forwards a string from the host: tpu.rewrite adds an Identity for
        # every result of a computation, even for one that the host computes (outside compilation).
        (result,) = operation.outputs
        return result.dtype == tf.string and _is_result(result) and not _is_from_host(operation)
    return any(tensor.dtype == tf.string for tensor in (*operation.inputs, *operation.outputs))


def _is_result(tensor: Any) -> bool:
    is_output = any(output is tensor for output in getattr(tensor.graph, "outputs", ()))
    return is_output or any(
        CLUSTER_ATTRIBUTE not in consumer.node_def.attr for consumer in tensor.consumers()
    )


def _is_from_host(operation: Any) -> bool:
    """Return whether an Identity forwards the result of an outside-compiled operation."""
    while operation.type == "Identity" and HOST_ATTRIBUTE not in operation.node_def.attr:
        operation = operation.inputs[0].op
    return HOST_ATTRIBUTE in operation.node_def.attr
