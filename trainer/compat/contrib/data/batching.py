"""Transformations for `Dataset.apply` that batch a dataset's elements or check their shapes."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting

Transformation = Callable[[Any], Any]


def batch_and_drop_remainder(batch_size: Any) -> Transformation:
    """Return a transformation that batches a dataset and drops a last batch that is not full."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Transformation:
    """Return a transformation that batches a dataset and pads the elements of a batch to one shape.

    The transformation drops a last batch that is not full.

    Args:
      padded_shapes: nest of the shapes to pad to. A dimension of None is padded to the longest
        element of the batch.
      padding_values: nest of the scalars to pad with; None pads with 0 and "".
    """
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """Return a transformation that sets the static shapes of a dataset's elements.

    It also checks the elements at run time: reading an element of another shape raises a
    tf.errors.InvalidArgumentError.

    Args:
      expected_shapes: nest of shapes with the structure of an element; a dimension of None
        accepts any size.
    """

    def apply(dataset: Any) -> Any:
        specs = tf.compat.v1.data.get_output_shapes(dataset)
        shapes = tf.nest.pack_sequence_as(
            specs, [tf.TensorShape(shape) for shape in _flatten_shapes(expected_shapes, specs)]
        )
        is_tuple = isinstance(specs, tuple) and not hasattr(specs, "_fields")

        def ensure_shapes(*components: Any) -> Any:
            element = components if is_tuple else components[0]
            return tf.nest.map_structure(tf.ensure_shape, element, shapes)

        return dataset.map(ensure_shapes)

    return apply


def _flatten_shapes(expected: Any, like: Any) -> list[Any]:
    if isinstance(like, dict):
        return [
            shape for key in sorted(like) for shape in _flatten_shapes(expected[key], like[key])
        ]
    if isinstance(like, (tuple, list)):
        pairs = zip(expected, like, strict=True)
        return [shape for part, part_like in pairs for shape in _flatten_shapes(part, part_like)]
    return [expected]


def sliding_window_batch(
    window_size: Any, stride: Any = None, window_shift: Any = None, window_stride: Any = 1
) -> Transformation:
    """Return a transformation that slides a window over a dataset, and makes each window a batch.

    The transformation drops incomplete windows.

    Args:
      window_shift: number of elements between the starts of consecutive windows; 1 by default.
      window_stride: distance in the dataset between neighbours in a window; 1 makes a window of
        consecutive elements.
    """
    if stride is not None and window_shift is not None:
        raise InvalidSetting(
            f"sliding_window_batch has stride={stride!r} and window_shift={window_shift!r}, "
            f"which mean the same. Set window_shift only."
        )
    shift = next((value for value in (window_shift, stride) if value is not None), 1)

    return lambda dataset: dataset.window(
        window_size, shift=shift, stride=window_stride, drop_remainder=True
    ).flat_map(lambda *windows: _zip_windows(windows, window_size))


def _zip_windows(windows: tuple[Any, ...], size: Any) -> Any:
    batches = tf.nest.map_structure(lambda window: window.batch(size), windows)
    # If the elements are not tuples, `windows` holds a single dataset. Return its batch without
    # zipping, which would turn the elements into tuples of one component.
    components = batches[0] if len(batches) == 1 else batches
    return tf.data.Dataset.zip(components) if isinstance(components, (tuple, dict)) else components
