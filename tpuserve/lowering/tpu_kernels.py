"""Replaces ops that XLA compiles only for TPUs by functions of ops that it compiles for any device.

TensorFlow registers these ops' XLA kernels in its library for TPUs, tensorflow/core/tpu/kernels.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.ir.function_renaming import rename_changed_functions, rename_outputs

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

# The name of the output argument of a PartitionedCall.
_CALL_OUTPUT = "output"


def has_only_tpu_kernel(op: str) -> bool:
    """Return whether XLA compiles an op for TPUs only, so that other devices need a replacement."""
    return op in _REPLACEMENTS


def replace_in_graph(graph: "GraphDef") -> None:
    """Replace the ops of a graph and its functions that XLA compiles only for TPUs, in place.

    The functions that contain such ops get new names, because a tf.Graph may have the old ones.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = itertools.chain(graph.node, *(function.node_def for function in functions.values()))
    if not any(has_only_tpu_kernel(node.op) for node in nodes):
        return
    original = type(graph)()
    original.CopyFrom(graph)
    for function in list(functions.values()):
        replace_in_function(function, functions)
    _replace(graph.node, functions)
    known = {function.signature.name for function in original.library.function}
    graph.library.function.extend(functions[name] for name in functions.keys() - known)
    rename_changed_functions(graph, original)
    graph.library.function.extend(original.library.function)


def replace_in_function(
    function: "FunctionDef", library: "MutableMapping[str, FunctionDef]"
) -> None:
    """Replace the ops in a function's body that XLA compiles only for TPUs, in place.

    Args:
      library: function name → FunctionDef; the functions of the replacements are added.
    """
    rename_outputs(function, _replace(function.node_def, library))


def _replace(
    nodes: "Iterable[NodeDef]", library: "MutableMapping[str, FunctionDef]"
) -> dict[str, dict[str, str]]:
    """Let nodes call functions in the place of their ops; return how their outputs are renamed."""
    renamed = {}
    for node in nodes:
        if has_only_tpu_kernel(node.op):
            signature = op_defs.op_definition(node, {})
            function = _make_function(node, signature)
            library.setdefault(function.signature.name, function)
            renamed[node.name] = {signature.output_arg[0].name: _CALL_OUTPUT}
            _call(node, function)
    return renamed


def _make_function(node: "NodeDef", signature: "OpDef") -> Any:
    import tensorflow as tf

    types = [
        tf.as_dtype(node.attr[argument.type_attr].type if argument.type_attr else argument.type)
        for argument in signature.input_arg
    ]
    flags = {
        attribute.name: node.attr[attribute.name].b
        for attribute in signature.attr
        if attribute.type == "bool"
    }
    function: Any = tf.function(functools.partial(_REPLACEMENTS[node.op], **flags), autograph=False)
    specs = [tf.TensorSpec(None, dtype) for dtype in types]
    definition = function.get_concrete_function(*specs).function_def
    # Name the function by what it computes: `definition` has the number of the tracing in its name.
    chosen = [name for name, is_set in flags.items() if is_set]
    definition.signature.name = "_".join([node.op, types[0].name, *chosen])
    return definition


def _call(node: "NodeDef", function: Any) -> None:
    signature = function.signature
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["f"].func.name = signature.name
    node.attr["Tin"].list.type.extend(argument.type for argument in signature.input_arg)
    node.attr["Tout"].list.type.extend(argument.type for argument in signature.output_arg)
    for name in ("config", "config_proto", "executor_type"):
        node.attr[name].s = b""


def _resize_nearest_gradient(
    gradients: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool
) -> Any:
    """Sum the gradients of the pixels that a resizing has copied from the same pixel.

    Args:
      gradients: [batch, resized height, resized width, channels].
      size: int32 [2], the height and width of the original image.
    """
    import tensorflow as tf

    for axis in (1, 2):
        original, resized = size[axis - 1], tf.shape(gradients)[axis]
        wide, narrow = tf.cast(resized, tf.float32), tf.cast(original, tf.float32)
        scale = narrow / wide
        if align_corners:
            scale = tf.where(resized > 1, (narrow - 1) / (wide - 1), scale)
        position = tf.cast(tf.range(resized), tf.float32)
        position = (position + 0.5 if half_pixel_centers else position) * scale
        index = tf.floor(position)
        if align_corners:
            index += tf.cast(position - index >= 0.5, tf.float32)
        sources = tf.minimum(tf.cast(index, tf.int32), original - 1)
        order = [axis, *(other for other in range(4) if other != axis)]
        inverse = [order.index(other) for other in range(4)]
        summed = tf.math.unsorted_segment_sum(tf.transpose(gradients, order), sources, original)
        gradients = tf.transpose(summed, inverse)
    return gradients


def _inplace_update(values: Any, rows: Any, updates: Any) -> Any:
    """Return a tensor with some rows replaced; row i stands for row i modulo the number of rows."""
    import tensorflow as tf

    return tf.tensor_scatter_nd_update(values, _row_indices(values, rows), updates)


def _inplace_add(values: Any, rows: Any, updates: Any) -> Any:
    import tensorflow as tf

    return tf.tensor_scatter_nd_add(values, _row_indices(values, rows), updates)


def _row_indices(values: Any, rows: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(rows % tf.shape(values)[0], [-1, 1])


# Op → a function that builds ops with the same result; it takes the op's inputs and its bools.
_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "InplaceAdd": _inplace_add,
    "InplaceUpdate": _inplace_update,
    "ResizeNearestNeighborGrad": _resize_nearest_gradient,
}
