"""Functions that check the shapes and dtypes of tensors, and that convert or sum tensors."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import confusion_matrix

from tpuserve.errors import InvalidSetting

v1 = tf.compat.v1


def get_name_scope() -> str:
    """Return the current name scope, without a trailing slash."""
    return str(v1.get_default_graph().get_name_scope())


def get_placeholders(graph: Any) -> list[Any]:
    """Return the placeholders of a graph."""
    return [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]


def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Any:
    """Check that a tensor's static shape is [], and return the tensor."""
    with tf.name_scope(name or "assert_scalar"):
        tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank != 0:
        prefix = f"{message} " if message else ""
        raise InvalidSetting(f"{prefix}{tensor.name} has shape {tensor.shape}. Pass a scalar.")
    return tensor


def assert_scalar_int(tensor: Any, name: str | None = None) -> Any:
    """Check that a tensor is an integer scalar, and return the tensor."""
    tensor = assert_scalar(tensor, name)
    if not tensor.dtype.base_dtype.is_integer:
        raise InvalidSetting(f"{tensor.name} has dtype {tensor.dtype.name}. Pass an integer.")
    return tensor


def with_shape(expected_shape: Any, tensor: Any) -> Any:
    """Check a tensor's shape and return the tensor.

    If the static shape is not known, the check is made when the returned tensor is computed.
    """
    return tf.ensure_shape(tensor, tf.TensorShape(tf.get_static_value(expected_shape)))


def with_same_shape(expected_tensor: Any, tensor: Any) -> Any:
    """Check at run time that `tensor` has the shape of `expected_tensor`, and return `tensor`."""
    with tf.control_dependencies([v1.assert_equal(tf.shape(expected_tensor), tf.shape(tensor))]):
        return tf.identity(tensor)


def remove_squeezable_dimensions(
    predictions: Any, labels: Any, name: str | None = None
) -> tuple[Any, Any]:
    """If the ranks of two tensors differ by 1, remove the last dimension of the higher-rank tensor.

    Args:
      labels: a tensor of the same shape. One of the two tensors may have an additional last
        dimension of size 1.
    """
    labels, predictions = confusion_matrix.remove_squeezable_dimensions(
        labels, predictions, name=name
    )
    return predictions, labels


def reduce_sum_n(tensors: Sequence[Any], name: str | None = None) -> Any:
    """Return the scalar sum of all elements of all tensors."""
    return tf.add_n([tf.reduce_sum(tensor) for tensor in tensors], name=name)


def convert_to_tensor_or_sparse_tensor(
    value: Any, dtype: Any = None, name: str | None = None
) -> Any:
    """Convert a dense value to a tensor, or a sparse value to a tf.SparseTensor.

    Args:
      name: name of the op that holds a dense value; None for a default name.
    """
    if isinstance(value, (tf.SparseTensor, v1.SparseTensorValue)):
        return tf.SparseTensor.from_value(value)
    return tf.convert_to_tensor(value, dtype=dtype, name=name)
