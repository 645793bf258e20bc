"""Lowering of what was traced apart, into the graph that it was traced for."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering.graph_lowering import lower
from tpuserve.lowering.ir.function_renaming import rename_changed_functions

_NAME = "emulated"
_GRADIENT = "EmulatedTpuComputation"

# Of TensorFlow 1's own loops and branches, which are not to be known of outside of their graph.
_OF_CONTROL_FLOW = ("cond_context", "while_context")


def build_and_lower(build: Callable[[], Any], *, compiled: bool = True) -> Any:
    """What a function builds, built apart for a TPU, and lowered into the default graph.

    The default graph never holds a TPU op, so any session can run what is returned. Variables are
    made in the default graph, under the names they would have; other tensors of it are captured.
    Loops and branches are functions, as the TPU's compiler would make them.

    Args:
      build: takes nothing; returns a nest of tensors, operations and None.
      compiled: whether XLA compiles what each core computes.

    Returns:
      The nest, in tensors and operations of the default graph.

    Raises:
      LoweringError: something has no form on a CPU.
    """
    graph = tf.compat.v1.get_default_graph()
    traced = FuncGraph(_outermost(graph).unique_name("tpu_computation"))
    with traced.as_default():
        built = _built(build)
    _hand_on_collections(traced, graph)
    flat = tf.nest.flatten(built, expand_composites=True)
    targets = [each for each in flat if getattr(each, "graph", None) is traced]
    twins = iter(_imported(targets, traced, graph, compiled=compiled))
    lowered = [
        _like(next(twins), each) if getattr(each, "graph", None) is traced else each
        for each in flat
    ]
    return tf.nest.pack_sequence_as(built, lowered, expand_composites=True)


def is_lowered(graph: Any) -> bool:
    """Whether a graph holds what `build_and_lower` has made."""
    return any(
        node.op == "Identity" and node.attr["_gradient_op_type"].s == _GRADIENT.encode()
        for node in graph.as_graph_def().node
    )


def _outermost(graph: Any) -> Any:
    # The functions of all graphs inside of it are in one library in the end.
    while isinstance(graph, FuncGraph):
        graph = graph.outer_graph
    return graph


@tf.RegisterGradient(_GRADIENT)
def _refuse_gradient(operation: Any, *_: Any) -> None:
    raise UnsupportedOnTpu(
        f"gradients are asked for through {operation.name!r}, a result of a TPU computation, and "
        f"a TPU gives none from outside of it. Compute them inside, as an optimizer's minimize "
        f"called there does."
    )


def _built(build: Callable[[], Any]) -> Any:
    try:
        return build()
    except TypeError as error:
        # Captured, a variable of version 1 is a value.
        if "_ref" not in str(error):
            raise
        raise UnsupportedOnTpu(
            f"a TPU computation changes a variable that is none of a TPU's: {error}. Make it with "
            f"use_resource=True, or call tf.enable_resource_variables() before."
        ) from None


def _like(twin: Any, target: Any) -> Any:
    """The twin under the name that the target has on a TPU, and with its shape."""
    if not tf.is_tensor(twin):
        return tf.group(twin, name=target.name)
    with tf.compat.v1.get_default_graph().gradient_override_map({"Identity": _GRADIENT}):
        result = tf.identity(twin, name=target.op.name)
    # What stands for an infeed or a call does not know the shapes.
    result.set_shape(target.shape)
    return result


def _seen_from(graph: Any, tensor: Any) -> Any:
    """A tensor that may be of a graph around this one."""
    return graph.capture(tensor) if isinstance(graph, FuncGraph) else tensor


def _imported(targets: list[Any], traced: Any, graph: Any, *, compiled: bool) -> list[Any]:
    """Lowered twins of ops and tensors of a traced graph, in the graph that it was traced for."""
    if not targets:
        return []
    captured = {inner.op.name: _seen_from(graph, outer) for outer, inner in traced.captures}
    lowered = lower(_definition(targets, traced), compiled=compiled)
    known = tf.compat.v1.GraphDef(library=graph.as_graph_def().library)
    rename_changed_functions(lowered, known, suffix=f"_{_NAME}")
    inside = [node for node in lowered.node if node.name not in captured]
    del lowered.node[:]
    lowered.node.extend(inside)
    with tf.control_dependencies(list(traced.function_captures.control)), tf.device(None):
        twins: list[Any] = tf.graph_util.import_graph_def(
            lowered,
            input_map=_input_map(inside, captured),
            return_elements=[each.name for each in targets],
            name=_NAME,
        )
    return twins


def _input_map(nodes: Any, captured: dict[str, Any]) -> dict[str, Any]:
    used = {each for node in nodes for each in node.input}
    return {
        reference: tensor
        for name, tensor in captured.items()
        for reference in (name, f"^{name}")
        if reference in used
    }


def _definition(targets: list[Any], traced: Any) -> Any:
    """What the targets need, as a session would find it."""
    pending, needed = [getattr(each, "op", each) for each in targets], set()
    while pending:
        operation = pending.pop()
        if operation.name in needed:
            continue
        needed.add(operation.name)
        pending.extend(each.op for each in operation.inputs)
        pending.extend(operation.control_inputs)
    definition = traced.as_graph_def()
    nodes = [node for node in definition.node if node.name in needed]
    for node in nodes:
        # Variables are elsewhere, so there is nothing here to be colocated with.
        node.attr.pop("_class", None)
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del definition.node[:]
    definition.node.extend(kept)
    return definition


def _hand_on_collections(traced: Any, graph: Any) -> None:
    """Adds to the graph's collections what was added while tracing, but for what is inside."""
    for name in traced.get_all_collection_keys():
        if name in _OF_CONTROL_FLOW:
            continue
        known = {id(each) for each in graph.get_collection_ref(name)}
        for each in traced.get_collection(name):
            if id(each) not in known and getattr(each, "graph", graph) is graph:
                graph.add_to_collection(name, each)
