"""A Keras function as ops of the default graph.

Keras runs its models eagerly, or inside of a tf.function that captures its variables. So the
function is traced as Keras would trace it, and the graph that comes of it is put into the default
one, with other variables in the place of those that were captured. What the model, its losses,
its metrics and its optimizer do is what they do in `model.fit`: none of it is written anew.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from trainer.keras.model import tf2_engine
from trainer.tensorflow_internals import (
    autograph_util,
    control_flow_ops,
    control_flow_util,
    eager_context,
    func_graph_from_py_func,
)


@contextlib.contextmanager
def eager_mode() -> Iterator[None]:
    """Ops run at once, whatever graph is being built, and in programs without eager execution."""
    with eager_context.eager_mode(), tf2_engine.use_tf2_engine():
        yield


def is_for_xla() -> bool:
    """Whether the ops of the default graph are compiled by XLA, as those of a TPU are."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def trace_function(function: Callable[..., Any], specs: Sequence[Any], *, for_xla: bool) -> Any:
    """The graph of a function, a FuncGraph.

    Args:
      function: takes one tensor for each spec, returns a list of tensors.
      specs: TensorSpecs.
      for_xla: whether loops and their gradients must have a form that XLA compiles.
    """

    def traced(*arguments: Any) -> list[Any]:
        with _xla_context() if for_xla else contextlib.nullcontext():
            # An argument that comes back as it is would have no node of its own.
            return [tf.identity(each) for each in function(*arguments)]

    with eager_mode():
        # As tf.function traces; but that one does so twice to find variables that are created.
        return func_graph_from_py_func(
            "keras", autograph_util.py_func_from_autograph(traced), tuple(specs), {}
        )


@contextlib.contextmanager
def _xla_context() -> Iterator[None]:
    inside = control_flow_ops.XLAControlFlowContext()
    inside.Enter()
    try:
        yield
    finally:
        inside.Exit()


def inline_traced_graph(
    traced: Any, arguments: Sequence[Any], handle_of: Callable[[Any], Any], name: str
) -> list[Any]:
    """The outputs of a traced function, computed in the default graph.

    Each of them is there only when all that the function does is done; and it does nothing before
    all arguments are there: an input that ends must not leave a step half made.

    Args:
      traced: from `trace`.
      arguments: tensors of the default graph.
      handle_of: for the handle of a variable that was captured, the one to take in its place.
      name: prefix of the ops.
    """
    graph = tf.compat.v1.get_default_graph()
    captures = [(outer, inner) for outer, inner in traced.captures]
    given = traced.inputs[: len(traced.inputs) - len(captures)]
    arguments = [_capture(graph, each) for each in arguments]
    inputs = {inner.name: tensor for inner, tensor in zip(given, arguments, strict=True)}
    for outer, inner in captures:
        if outer.dtype == tf.resource:
            inputs[inner.name] = _capture(graph, handle_of(outer))
        else:
            inputs[inner.name] = tf.constant(outer.numpy())
    wanted = [each.name for each in traced.outputs]
    done = [each.name for each in traced.control_outputs]
    before = len(graph.get_operations())
    body, used = _remove_placeholders(
        traced.as_graph_def(), {each.partition(":")[0] for each in inputs}
    )
    returned = tf.graph_util.import_graph_def(
        body,
        input_map={each: tensor for each, tensor in inputs.items() if each in used},
        return_elements=[*wanted, *done],
        name=name,
    )
    if done:
        _wait_for_arguments(graph.get_operations()[before:], arguments)
    results = []
    with tf.control_dependencies(returned[len(wanted) :]):
        for made, one in zip(returned[: len(wanted)], traced.outputs, strict=True):
            result = tf.identity(made)
            result.set_shape(one.shape)
            results.append(result)
    return results


def _remove_placeholders(graph_def: Any, placeholders: set[str]) -> tuple[Any, set[str]]:
    """A graph without its placeholders, of which TensorFlow says that no TPU can run them.

    Returns:
      The graph, and the names of the tensors of placeholders that it uses.
    """
    body = tf.compat.v1.GraphDef()
    body.CopyFrom(graph_def)
    del body.node[:]
    used: set[str] = set()
    for node in graph_def.node:
        if node.name in placeholders:
            continue
        kept = body.node.add()
        kept.CopyFrom(node)
        # An op on a variable wants to be where that is, which it is without a word.
        kept.attr.pop("_class", None)
        del kept.input[:]
        kept.input.extend(
            each for each in node.input if not (each[0] == "^" and each[1:] in placeholders)
        )
        used.update(
            each if ":" in each else f"{each}:0" for each in kept.input if not each.startswith("^")
        )
    return body, used


def _wait_for_arguments(operations: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Has operations that touch variables wait for the arguments."""
    sources = {each.op.name: each.op for each in arguments}
    for each in operations:
        if any(one.dtype == tf.resource for one in each.inputs):
            each._add_control_inputs(list(sources.values()))


def _capture(graph: Any, tensor: Any) -> Any:
    """The tensor as the body of a loop, or another function, has it."""
    capture = getattr(graph, "capture", None)
    return tensor if capture is None or tensor.graph is graph else capture(tensor)
