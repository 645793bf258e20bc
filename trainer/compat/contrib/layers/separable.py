"""The layer separable_convolution2d, for depthwise and separable convolutions."""

from typing import Any

import tensorflow as tf

from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.initializers import xavier_initializer
from trainer.compat.contrib.layers.layer_builder import (
    expand_to_pair,
    is_channels_first,
    layer_scope,
    static_channels,
)

v1 = tf.compat.v1


@add_arg_scope
def separable_convolution2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Any = 1,
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = v1.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Convolve each channel on its own, then combine the results by a 1x1 convolution.

    Args:
      num_outputs: number of filters of the 1x1 convolution; None for no such convolution.
    """
    inputs = tf.convert_to_tensor(inputs)
    is_first = is_channels_first(data_format)
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "SeparableConv2d", inputs, reuse, trainable, *collections) as layer:
        channels = static_channels(inputs, 1 if is_first else -1)
        depthwise = layer.variable(
            "depthwise_weights",
            [*expand_to_pair(kernel_size), channels, depth_multiplier],
            weights_initializer,
            weights_regularizer,
        )
        strides = [1, 1, *expand_to_pair(stride)] if is_first else [1, *expand_to_pair(stride), 1]
        options = {
            "data_format": data_format,
            "dilations": expand_to_pair(rate),
            "padding": padding.upper(),
        }
        if num_outputs is None:
            outputs = tf.nn.depthwise_conv2d(inputs, depthwise, strides, **options)
        else:
            pointwise = layer.variable(
                "pointwise_weights",
                [1, 1, channels * depth_multiplier, num_outputs],
                pointwise_initializer or weights_initializer,
                weights_regularizer,
            )
            outputs = tf.nn.separable_conv2d(inputs, depthwise, pointwise, strides, **options)
        outputs = layer.normalize_or_add_bias(
            outputs,
            normalizer_fn,
            normalizer_params,
            biases_initializer,
            biases_regularizer,
            is_first,
        )
        return layer.finish(outputs, activation_fn)


separable_conv2d = separable_convolution2d
