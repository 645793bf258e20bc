"""Maxima and means of places next to each other."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.layer_builder import add_to_outputs_collections, expand_sizes

v1 = tf.compat.v1


@add_arg_scope
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The largest of each window.

    Args:
      inputs: [b, height, width, c]; [b, c, height, width] with data_format "NCHW".
      kernel_size, stride: of windows, in places; a number or a pair.
      padding: "VALID" or "SAME".
      data_format: "NHWC" or "NCHW".
      outputs_collections: collections that the result goes to.
      scope: of the ops; "MaxPool2D" by default.
    """
    return _pool(
        tf.nn.max_pool2d, "MaxPool2D", inputs, kernel_size, stride, padding, data_format,
        outputs_collections, scope,
    )  # fmt: skip


@add_arg_scope
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The mean of each window; "AvgPool2D" by default; see `max_pool2d`."""
    return _pool(
        tf.nn.avg_pool2d, "AvgPool2D", inputs, kernel_size, stride, padding, data_format,
        outputs_collections, scope,
    )  # fmt: skip


@add_arg_scope
def max_pool3d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NDHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The largest of each window of [b, depth, height, width, c]; see `max_pool2d`."""
    return _pool(
        tf.nn.max_pool3d, "MaxPool3D", inputs, kernel_size, stride, padding, data_format,
        outputs_collections, scope,
    )  # fmt: skip


@add_arg_scope
def avg_pool3d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NDHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """The mean of each window of [b, depth, height, width, c]; see `max_pool2d`."""
    return _pool(
        tf.nn.avg_pool3d, "AvgPool3D", inputs, kernel_size, stride, padding, data_format,
        outputs_collections, scope,
    )  # fmt: skip


def _pool(
    pool: Callable[..., Any],
    default_scope: str,
    inputs: Any,
    kernel_size: Any,
    stride: Any,
    padding: str,
    data_format: str,
    collections: Any,
    scope: Any,
) -> Any:
    with v1.name_scope(scope, default_scope, [inputs]) as name:
        dimensions = len(data_format) - 2
        outputs = pool(
            tf.convert_to_tensor(inputs),
            expand_sizes(kernel_size, dimensions),
            expand_sizes(stride, dimensions),
            padding,
            data_format=data_format,
        )
        return add_to_outputs_collections(collections, name, outputs)
