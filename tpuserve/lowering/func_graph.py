"""Builds a TPU computation that runs on a CPU: replaces TPU ops by CPU ops (lowers it).

The user's code builds the computation in a FuncGraph. Only the lowered ops are added to the user's
own graph.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering.graph_lowering import lower
from tpuserve.lowering.ir.function_renaming import rename_changed_functions
from tpuserve.tensorflow_internals import FuncGraph

_SCOPE = "emulated"
# The name of a gradient function that raises an error, because gradients must be computed inside of
# a TPU computation. Each result of a computation gets this gradient function.
_GRADIENT = "EmulatedTpuComputation"

# Keys of the collections that are not copied from a FuncGraph to the user's graph. They hold
# contexts of TensorFlow 1's control flow, which are valid only in the graph where they were
# created.
_CONTROL_FLOW_COLLECTIONS = ("cond_context", "while_context")


def build_and_lower(build: Callable[[], Any], *, compiled: bool = True) -> Any:
    """Build a TPU computation in a FuncGraph, and add CPU ops for it to the default graph.

    The default graph gets no TPU ops, so that a session on a CPU can run the results.

    Args:
      build: builds the computation. It takes no arguments, and returns a nested structure of
        tensors, operations and None.

    Returns:
      The structure that `build` returned, with tensors and operations of the default graph in place
      of those of the FuncGraph.
    """
    graph = tf.compat.v1.get_default_graph()
    traced = FuncGraph(_outermost_graph(graph).unique_name("tpu_computation"))
    with traced.as_default():
        results = _call_build(build)
    _copy_collections(traced, graph)
    flat = tf.nest.flatten(results, expand_composites=True)
    targets = [result for result in flat if getattr(result, "graph", None) is traced]
    imported = iter(_import_lowered(targets, traced, graph, compiled=compiled))
    lowered = [
        _named_like(next(imported), result) if getattr(result, "graph", None) is traced else result
        for result in flat
    ]
    return tf.nest.pack_sequence_as(results, lowered, expand_composites=True)


def is_lowered(graph: Any) -> bool:
    """Return whether a tf.Graph contains a TPU computation that `build_and_lower` has added."""
    return any(
        node.op == "Identity" and node.attr["_gradient_op_type"].s == _GRADIENT.encode()
        for node in graph.as_graph_def().node
    )


def _outermost_graph(graph: Any) -> Any:
    # The name of a new FuncGraph must be unique in the outermost graph, because all graphs inside
    # of the outermost graph share its function library.
    while isinstance(graph, FuncGraph):
        graph = graph.outer_graph
    return graph


@tf.RegisterGradient(_GRADIENT)
def _refuse_gradient(operation: Any, *_: Any) -> None:
    raise UnsupportedOnTpu(
        f"gradients through {operation.name!r} were requested outside of the TPU computation that "
        f"returns it, which a TPU does not support. Compute them inside of the computation, for "
        f"example by calling an optimizer's minimize there."
    )


def _call_build(build: Callable[[], Any]) -> Any:
    try:
        return build()
    except TypeError as error:
        # An op that updates a variable of TensorFlow 1 raises a TypeError here, because it needs a
        # reference to the variable, but a FuncGraph captures only the value. Raise a clearer error.
        if "_ref" not in str(error):
            raise
        raise UnsupportedOnTpu(
            f"a TPU computation updates a variable that is not a resource variable: {error}. "
            f"Create it with use_resource=True, or call tf.enable_resource_variables() first."
        ) from None


def _named_like(lowered: Any, target: Any) -> Any:
    """Add an Identity or NoOp that gives a lowered result the name and shape of the original."""
    if not tf.is_tensor(lowered):
        return tf.group(lowered, name=target.name)
    with tf.compat.v1.get_default_graph().gradient_override_map({"Identity": _GRADIENT}):
        result = tf.identity(lowered, name=target.op.name)
    # Set the shape explicitly: after the lowering, a queue or a function call may produce the
    # tensor, and TensorFlow infers no shape for these.
    result.set_shape(target.shape)
    return result


def _import_lowered(targets: list[Any], traced: Any, graph: Any, *, compiled: bool) -> list[Any]:
    """Replace TPU ops in a FuncGraph by CPU ops, and import the result into the outer graph."""
    if not targets:
        return []
    captured = {inner.op.name: _captured_in(graph, outer) for outer, inner in traced.captures}
    lowered = lower(_graph_def(targets, traced), compiled=compiled)
    present = tf.compat.v1.GraphDef(library=graph.as_graph_def().library)
    rename_changed_functions(lowered, present, suffix=f"_{_SCOPE}")
    nodes = [node for node in lowered.node if node.name not in captured]
    del lowered.node[:]
    lowered.node.extend(nodes)
    with tf.control_dependencies(list(traced.function_captures.control)), tf.device(None):
        imported: list[Any] = tf.graph_util.import_graph_def(
            lowered,
            input_map=_input_map(nodes, captured),
            return_elements=[target.name for target in targets],
            name=_SCOPE,
        )
    return imported


def _captured_in(graph: Any, tensor: Any) -> Any:
    return graph.capture(tensor) if isinstance(graph, FuncGraph) else tensor


def _input_map(nodes: Any, captured: dict[str, Any]) -> dict[str, Any]:
    """Return the argument `input_map` of tf.graph_util.import_graph_def for captured tensors."""
    used = {reference for node in nodes for reference in node.input}
    return {
        reference: tensor
        for name, tensor in captured.items()
        for reference in (name, f"^{name}")
        if reference in used
    }


def _graph_def(targets: list[Any], traced: Any) -> Any:
    """Return a GraphDef with the targets and all nodes that they need."""
    pending, needed = [getattr(target, "op", target) for target in targets], set()
    while pending:
        operation = pending.pop()
        if operation.name in needed:
            continue
        needed.add(operation.name)
        pending.extend(tensor.op for tensor in operation.inputs)
        pending.extend(operation.control_inputs)
    definition = traced.as_graph_def()
    nodes = [node for node in definition.node if node.name in needed]
    for node in nodes:
        # Remove colocation constraints: they name variables in the outer graph, which the GraphDef
        # does not contain.
        node.attr.pop("_class", None)
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del definition.node[:]
    definition.node.extend(copies)
    return definition


def _copy_collections(traced: Any, graph: Any) -> None:
    for name in traced.get_all_collection_keys():
        if name in _CONTROL_FLOW_COLLECTIONS:
            continue
        present = {id(item) for item in graph.get_collection_ref(name)}
        for item in traced.get_collection(name):
            if id(item) not in present and getattr(item, "graph", graph) is graph:
                graph.add_to_collection(name, item)
