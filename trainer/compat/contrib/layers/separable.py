"""Filters over places, channel by channel, and then over channels alone."""

from typing import Any

import tensorflow as tf

from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.initializers import xavier_initializer
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    add_channel_bias,
    expand_to_pair,
    is_channels_first,
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
    """A convolution of each channel by itself, and one of 1 x 1 over what comes of them.

    Args:
      num_outputs: filters of the second; None leaves it out.
      depth_multiplier: filters of the first for each channel.
      weights_initializer, weights_regularizer: of "depthwise_weights", [kernel ..., c,
        depth_multiplier]; the regularizer is also that of "pointwise_weights".
      pointwise_initializer: of "pointwise_weights", [1, 1, c * depth_multiplier, num_outputs];
        weights_initializer by default.
      scope: "SeparableConv2d" by default.
      inputs, kernel_size, stride, padding, data_format, rate, activation_fn, normalizer_fn,
        normalizer_params, biases_initializer, biases_regularizer, reuse, variables_collections,
        outputs_collections, trainable: see `convolution`.
    """
    inputs = tf.convert_to_tensor(inputs)
    is_first = is_channels_first(data_format)
    with v1.variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        channels = static_channels(inputs, 1 if is_first else -1)
        depthwise = made.variable(
            "depthwise_weights",
            [*expand_to_pair(kernel_size), channels, depth_multiplier],
            weights_initializer,
            weights_regularizer,
        )
        strides = [1, 1, *expand_to_pair(stride)] if is_first else [1, *expand_to_pair(stride), 1]
        how = {
            "data_format": data_format,
            "dilations": expand_to_pair(rate),
            "padding": padding.upper(),
        }
        if num_outputs is None:
            outputs = tf.nn.depthwise_conv2d(inputs, depthwise, strides, **how)
        else:
            pointwise = made.variable(
                "pointwise_weights",
                [1, 1, channels * depth_multiplier, num_outputs],
                pointwise_initializer or weights_initializer,
                weights_regularizer,
            )
            outputs = tf.nn.separable_conv2d(inputs, depthwise, pointwise, strides, **how)
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            size = channels * depth_multiplier if num_outputs is None else num_outputs
            biases = made.variable("biases", [size], biases_initializer, biases_regularizer)
            outputs = add_channel_bias(outputs, biases, is_first)
        return made.result(outputs, activation_fn)


separable_conv2d = separable_convolution2d
