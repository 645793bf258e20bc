"""Layers for max and average pooling over two or three spatial dimensions."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.layer_builder import add_to_outputs_collections, expand_sizes

v1 = tf.compat.v1


def _make_pooling_layer(
    pool: Callable[..., Any], default_scope: str, default_data_format: str, docstring: str
) -> Callable[..., Any]:
    """Return a layer function that applies a pooling op of TensorFlow."""

    def layer(
        inputs: Any,
        kernel_size: Any,
        stride: Any = 2,
        padding: str = "VALID",
        data_format: str = default_data_format,
        outputs_collections: Any = None,
        scope: Any = None,
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
            return add_to_outputs_collections(outputs_collections, name, outputs)

    # Set the name of the layer function, because `repeat` names variable scopes after the function.
    layer.__name__ = pool.__name__
    layer.__doc__ = docstring
    return add_arg_scope(layer)


_MAX_POOL2D = """Return the maximum of each window.

    Args:
      inputs: float [b, height, width, c]; [b, c, height, width] with data_format "NCHW".
      kernel_size: size of the windows in pixels; a number or a pair.
      stride: stride of the windows in pixels; a number or a pair.
      padding: "VALID" or "SAME".
      data_format: "NHWC" or "NCHW".
      outputs_collections: collections for the output.
      scope: name scope of the ops; "MaxPool2D" by default.
    """
_AVG_POOL2D = 'Return the mean of each window; see `max_pool2d`. The default scope is "AvgPool2D".'
_MAX_POOL3D = "Return the maximum of each window of [b, depth, height, width, c]; see `max_pool2d`."
_AVG_POOL3D = "Return the mean of each window of [b, depth, height, width, c]; see `max_pool2d`."

max_pool2d = _make_pooling_layer(tf.nn.max_pool2d, "MaxPool2D", "NHWC", _MAX_POOL2D)
avg_pool2d = _make_pooling_layer(tf.nn.avg_pool2d, "AvgPool2D", "NHWC", _AVG_POOL2D)
max_pool3d = _make_pooling_layer(tf.nn.max_pool3d, "MaxPool3D", "NDHWC", _MAX_POOL3D)
avg_pool3d = _make_pooling_layer(tf.nn.avg_pool3d, "AvgPool3D", "NDHWC", _AVG_POOL3D)
