"""Max and average pooling."""

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
    """Return the maximum of each window.

    Args:
      inputs: float [b, height, width, c]; [b, c, height, width] with data_format "NCHW".
      kernel_size: size of the windows in pixels; a number or a pair.
      stride: stride of the windows in pixels; a number or a pair.
      padding: "VALID" or "SAME".
      data_format: "NHWC" or "NCHW".
      outputs_collections: collections for the output.
      scope: name scope of the ops; "MaxPool2D" by default.
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
    """Return the mean of each window; see `max_pool2d`. The default scope is "AvgPool2D"."""
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
    """Return the maximum of each window of [b, depth, height, width, c]; see `max_pool2d`."""
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
    """Return the mean of each window of [b, depth, height, width, c]; see `max_pool2d`."""
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
    """Apply a pooling op of TensorFlow in a name scope; see `max_pool2d`."""
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
