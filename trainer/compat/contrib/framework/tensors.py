"""Checks of tensors, and small sums of them."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import confusion_matrix

from tpuserve.errors import InvalidSetting

v1 = tf.compat.v1


def get_name_scope() -> str:
    """The present name scope, without a slash at its end."""
    return str(v1.get_default_graph().get_name_scope())


def get_placeholders(graph: Any) -> list[Any]:
    """The placeholders of a graph."""
    return [each.outputs[0] for each in graph.get_operations() if each.type == "Placeholder"]


def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Any:
    """The tensor, whose shape is known to be [].

    Args:
      tensor: any.
      name: of the ops.
      message: what the error begins with.

    Raises:
      InvalidSetting: it is not.
    """
    with tf.name_scope(name or "assert_scalar"):
        tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank != 0:
        said = f"{message} " if message else ""
        raise InvalidSetting(f"{said}{tensor.name} has the shape {tensor.shape}. Give a scalar.")
    return tensor


def assert_scalar_int(tensor: Any, name: str | None = None) -> Any:
    """The tensor, known to be a scalar of an integer type.

    Raises:
      InvalidSetting: it is not.
    """
    tensor = assert_scalar(tensor, name)
    if not tensor.dtype.base_dtype.is_integer:
        raise InvalidSetting(f"{tensor.name} is {tensor.dtype.name}. Give an integer.")
    return tensor


def with_shape(expected_shape: Any, tensor: Any) -> Any:
    """The tensor, of that shape; another fails when it is made, or when it runs."""
    return tf.ensure_shape(tensor, tf.TensorShape(tf.get_static_value(expected_shape)))


def with_same_shape(expected_tensor: Any, tensor: Any) -> Any:
    """The tensor, of the shape of another."""
    with tf.control_dependencies([v1.assert_equal(tf.shape(expected_tensor), tf.shape(tensor))]):
        return tf.identity(tensor)


def remove_squeezable_dimensions(
    predictions: Any, labels: Any, name: str | None = None
) -> tuple[Any, Any]:
    """Predictions and labels; that which has one dimension more, of size 1 at its end, without.

    Args:
      predictions, labels: of one shape but for that.
      name: of the ops.
    """
    labels, predictions = confusion_matrix.remove_squeezable_dimensions(
        labels, predictions, name=name
    )
    return predictions, labels


def reduce_sum_n(tensors: Sequence[Any], name: str | None = None) -> Any:
    """The sum of everything in all of the tensors, a scalar."""
    return tf.add_n([tf.reduce_sum(each) for each in tensors], name=name)


def convert_to_tensor_or_sparse_tensor(
    value: Any, dtype: Any = None, name: str | None = None
) -> Any:
    """A tensor, or a sparse one where the value is sparse."""
    if isinstance(value, (tf.SparseTensor, v1.SparseTensorValue)):
        return tf.SparseTensor.from_value(value)
    return tf.convert_to_tensor(value, dtype=dtype, name=name)
