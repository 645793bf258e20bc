"""Imports functions of a Keras model, such as a training step, into the default graph.

Keras runs its models eagerly, or inside a tf.function that captures its variables. This module
traces a function as Keras would.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.graph.references import data_inputs, node_name, tensor_name
from trainer import keras_internals
from trainer.tensorflow_internals import (
    autograph_util,
    control_flow_ops,
    control_flow_util,
    eager_context,
    func_graph_from_py_func,
    get_private_attribute,
)

_switch_lock = threading.RLock()
_depth = 0


def is_graph_model(model: Any) -> bool:
    """Return whether a Keras model was built without eager execution, as in TensorFlow 1.

    Its variables then live in the session of a graph.
    """
    # Check an attribute of the model, and not the base classes of its class: tf_keras can have
    # changed the base classes since the model was built.
    return "_originally_built_as_v1" in vars(model)


@contextlib.contextmanager
def use_tf2_engine() -> Iterator[None]:
    """Give tf_keras's layer and model classes their TensorFlow 2 base classes inside a context.

    The end of the context restores the previous base classes.
    """
    global _depth
    with _switch_lock:
        switched = _classes_to_switch() if _depth == 0 else {}
        for kind, (_, tf2_bases) in switched.items():
            kind.__bases__ = tf2_bases
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            for kind, (original_bases, _) in switched.items():
                kind.__bases__ = original_bases


def _classes_to_switch() -> dict[type, tuple[tuple[type, ...], tuple[type, ...]]]:
    """Find the tf_keras classes that currently have base classes for TensorFlow 1."""
    tf2_classes = keras_internals.get_loaded_engine_classes()
    switched = {}
    for root in list(tf2_classes.values())[:1]:
        for kind in _all_subclasses(root):
            bases = tuple(tf2_classes.get(base, base) for base in kind.__bases__)
            is_legacy = kind.__module__.startswith(keras_internals.LEGACY_TF_LAYERS)
            if bases != kind.__bases__ and not is_legacy:
                switched[kind] = kind.__bases__, bases
    return switched


def _all_subclasses(root: type) -> list[type]:
    kinds: list[type] = [root]
    known = {root}
    for kind in kinds:
        subclasses: list[type] = type.__subclasses__(kind)
        kinds.extend(subclass for subclass in subclasses if subclass not in known)
        known.update(subclasses)
    return kinds


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """Return a context in which ops run eagerly.

    Ops run eagerly even while a graph is built, or in a program that has disabled eager execution.
    """
    with eager_context.eager_mode(), use_tf2_engine():
        yield


def is_for_xla() -> bool:
    """Return whether XLA compiles the ops of the default graph, as it does for a TPU."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def trace_function(function: Callable[..., Any], specs: Sequence[Any], *, for_xla: bool) -> Any:
    """Trace a function into a graph of its own, as tf.function would."""

    def trace_results(*arguments: Any) -> list[Any]:
        with _xla_context() if for_xla else contextlib.nullcontext():
            # Add an identity op for each result.
            return [tf.identity(tensor) for tensor in function(*arguments)]

    with eager_mode():
        # Do not use tf.function, which would trace the function twice to find the variables that
        # the function creates.
        return func_graph_from_py_func(
            "keras", autograph_util.py_func_from_autograph(trace_results), tuple(specs), {}
        )


@contextlib.contextmanager
def _xla_context() -> Iterator[None]:
    """Return a context in which TensorFlow builds ops for compilation by XLA."""
    xla_context = control_flow_ops.XLAControlFlowContext()
    xla_context.Enter()
    try:
        yield
    finally:
        xla_context.Exit()


def inline_traced_graph(
    func_graph: Any,
    arguments: Sequence[Any],
    replace_handle: Callable[[Any], Any],
    name: str,
) -> list[Any]:
    """Import a traced function into the default graph.

    Each output depends on all side effects of the function.

    Args:
      replace_handle: takes the handle of a captured Keras variable, and returns the handle of the
        variable of the default graph that replaces it.
    """
    graph = tf.compat.v1.get_default_graph()
    arguments = [_capture(graph, tensor) for tensor in arguments]
    inputs = _map_inputs(graph, func_graph, arguments, replace_handle)
    output_names = [tensor.name for tensor in func_graph.outputs]
    control_outputs = [op.name for op in func_graph.control_outputs]
    num_ops_before = len(graph.get_operations())
    placeholders = {node_name(input_name) for input_name in inputs}
    body, used = _remove_placeholders(func_graph.as_graph_def(), placeholders)
    returned = tf.graph_util.import_graph_def(
        body,
        input_map={input_name: inputs[input_name] for input_name in inputs if input_name in used},
        return_elements=[*output_names, *control_outputs],
        name=name,
    )
    if control_outputs:
        _wait_for_arguments(graph.get_operations()[num_ops_before:], arguments)
    results = []
    with tf.control_dependencies(returned[len(output_names) :]):
        outputs = returned[: len(output_names)]
        for imported, traced in zip(outputs, func_graph.outputs, strict=True):
            result = tf.identity(imported)
            result.set_shape(traced.shape)
            results.append(result)
    return results


def _map_inputs(
    graph: Any,
    func_graph: Any,
    arguments: Sequence[Any],
    replace_handle: Callable[[Any], Any],
) -> dict[str, Any]:
    captures = list(func_graph.captures)
    parameters = func_graph.inputs[: len(func_graph.inputs) - len(captures)]
    inputs = {inner.name: tensor for inner, tensor in zip(parameters, arguments, strict=True)}
    for outer, inner in captures:
        if outer.dtype == tf.resource:
            inputs[inner.name] = _capture(graph, replace_handle(outer))
        else:
            inputs[inner.name] = tf.constant(outer.numpy())
    return inputs


def _remove_placeholders(graph_def: Any, placeholders: set[str]) -> tuple[Any, set[str]]:
    """Remove the placeholders from a graph, because TensorFlow rejects them on a TPU."""
    body = tf.compat.v1.GraphDef()
    body.CopyFrom(graph_def)
    del body.node[:]
    used: set[str] = set()
    for node in graph_def.node:
        if node.name in placeholders:
            continue
        copy = body.node.add()
        copy.CopyFrom(node)
        # Remove the attribute "_class", which colocates the op with a removed placeholder. Without
        # the attribute, TensorFlow places the op on the device of its variable.
        copy.attr.pop("_class", None)
        del copy.input[:]
        copy.input.extend(
            name for name in node.input if not (name[0] == "^" and name[1:] in placeholders)
        )
        used.update(map(tensor_name, data_inputs(copy)))
    return body, used


def _wait_for_arguments(operations: Sequence[Any], arguments: Sequence[Any]) -> None:
    sources = {tensor.op.name: tensor.op for tensor in arguments}
    for operation in operations:
        if any(tensor.dtype == tf.resource for tensor in operation.inputs):
            get_private_attribute(operation, "_add_control_inputs")(list(sources.values()))


def _capture(graph: Any, tensor: Any) -> Any:
    capture = getattr(graph, "capture", None)
    return tensor if capture is None or tensor.graph is graph else capture(tensor)
