"""Transformations for `Dataset.apply` that make or check batches."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting

Transformation = Callable[[Any], Any]


def batch_and_drop_remainder(batch_size: Any) -> Transformation:
    """Whole batches only: those that are left over at the end are dropped."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Transformation:
    """Whole batches only, of elements padded to one shape.

    Args:
      batch_size: elements of a batch.
      padded_shapes: nest of the shapes to pad to; None in a place for the batch's longest.
      padding_values: nest of scalars to pad with; None for 0 and ''.
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """The dataset with its elements' static shapes set; another shape fails as it is read.

    Args:
      expected_shapes: nest of shapes like the elements; None in a place for any size.
    """

    def check(tensor: Any, shape: Any) -> Any:
        return tf.ensure_shape(tensor, shape)

    def apply(dataset: Any) -> Any:
        specs = tf.compat.v1.data.get_output_shapes(dataset)
        shapes = tf.nest.pack_sequence_as(
            specs, [tf.TensorShape(each) for each in _flatten_shapes(expected_shapes, specs)]
        )
        tuples = isinstance(specs, tuple) and not hasattr(specs, "_fields")

        def checked(*element: Any) -> Any:
            whole = element if tuples else element[0]
            return tf.nest.map_structure(check, whole, shapes)

        return dataset.map(checked)

    return apply


def _flatten_shapes(expected: Any, like: Any) -> list[Any]:
    """The shapes of a nest, where a shape itself may be a list or a tuple."""
    if isinstance(like, dict):
        return [each for key in sorted(like) for each in _flatten_shapes(expected[key], like[key])]
    if isinstance(like, (tuple, list)):
        pairs = zip(expected, like, strict=True)
        return [each for one, other in pairs for each in _flatten_shapes(one, other)]
    return [expected]


def sliding_window_batch(
    window_size: Any, stride: Any = None, window_shift: Any = None, window_stride: Any = 1
) -> Transformation:
    """Batches of a window that moves over the dataset; what does not fill one is dropped.

    Args:
      window_size: elements of a window.
      stride: the old name of window_shift.
      window_shift: elements from the first of a window to the first of the next; 1 by default.
      window_stride: elements from one of a window to its next.

    Raises:
      InvalidSetting: both stride and window_shift are given.
    """
    if stride is not None and window_shift is not None:
        raise InvalidSetting(
            f"sliding_window_batch has stride={stride!r} and window_shift={window_shift!r}, "
            f"which mean the same. Give window_shift."
        )
    shift = next((each for each in (window_shift, stride) if each is not None), 1)

    return lambda dataset: dataset.window(
        window_size, shift=shift, stride=window_stride, drop_remainder=True
    ).flat_map(lambda *windows: _zip_windows(windows, window_size))


def _zip_windows(windows: tuple[Any, ...], size: Any) -> Any:
    batches = tf.nest.map_structure(lambda each: each.batch(size), windows)
    # An element that is no tuple comes as the one argument.
    whole = batches[0] if len(batches) == 1 else batches
    return tf.data.Dataset.zip(whole) if isinstance(whole, (tuple, dict)) else whole
