"""Layers for convolutions and transposed convolutions."""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.initializers import xavier_initializer
from trainer.compat.contrib.layers.layer_builder import (
    expand_sizes,
    expand_to_pair,
    is_channels_first,
    layer_scope,
    static_channels,
    static_shape,
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


@add_arg_scope
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008
    weights_regularizer: Any = None,
    biases_initializer: Any = v1.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    conv_dims: int | None = None,
) -> Any:
    """Convolve over one, two or three spatial dimensions.

    Args:
      inputs: float [b, space ..., c]; [b, c, space ...] with data_format "NC...".
      data_format: "NWC", "NHWC" or "NDHWC"; "NCW", "NCHW" or "NCDHW" for channels first. None
        means channels last.

    Raises:
      InvalidSetting: inputs do not have the required number of spatial dimensions, or the number of
        channels is unknown.
    """
    inputs = tf.convert_to_tensor(inputs)
    dimensions = (inputs.shape.rank or 0) - 2
    if dimensions not in (1, 2, 3) or conv_dims not in (None, dimensions):
        raise InvalidSetting(
            f"A convolution of {conv_dims or '1 to 3'} dimensions got inputs of shape "
            f"{inputs.shape}. Pass inputs with a batch, the dimensions of space, and channels."
        )
    is_first = is_channels_first(data_format)
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "Conv", inputs, reuse, trainable, *collections) as layer:
        weights = layer.variable(
            "weights",
            [
                *expand_sizes(kernel_size, dimensions),
                static_channels(inputs, 1 if is_first else -1),
                num_outputs,
            ],
            weights_initializer,
            weights_regularizer,
        )
        outputs = tf.nn.convolution(
            inputs,
            weights,
            strides=expand_sizes(stride, dimensions),
            padding=padding.upper(),
            data_format=data_format,
            dilations=expand_sizes(rate, dimensions),
        )
        outputs = layer.normalize_or_add_bias(
            outputs,
            normalizer_fn,
            normalizer_params,
            biases_initializer,
            biases_regularizer,
            is_first,
        )
        return layer.finish(outputs, activation_fn)


def _convolution_over(dimensions: int) -> Callable[..., Any]:
    """Return `convolution` for a fixed number of spatial dimensions."""

    def layer(*args: Any, **kwargs: Any) -> Any:
        return convolution.__wrapped__(  # type: ignore[attr-defined]
            *args, conv_dims=dimensions, **kwargs
        )

    # Set the name of the layer function, because `repeat` names variable scopes after the function.
    layer.__name__ = f"convolution{dimensions}d"
    layer.__doc__ = f"Convolve over {dimensions} dimension(s) of space; see `convolution`."
    layer.__signature__ = inspect.signature(convolution)  # type: ignore[attr-defined]
    return add_arg_scope(layer)


conv1d = convolution1d = _convolution_over(1)
conv2d = convolution2d = _convolution_over(2)
conv3d = convolution3d = _convolution_over(3)


@add_arg_scope
def convolution2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: Any = tf.nn.relu,
    normalizer_fn: Any = None,
    normalizer_params: Any = None,
    weights_initializer: Any = xavier_initializer(),  # noqa: B008
    weights_regularizer: Any = None,
    biases_initializer: Any = v1.zeros_initializer(),  # noqa: B008
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Apply the transpose of a 2D convolution, which increases height and width."""
    inputs = tf.convert_to_tensor(inputs)
    is_first = is_channels_first(data_format)
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "Conv2d_transpose", inputs, reuse, trainable, *collections) as layer:
        kernel, strides = expand_to_pair(kernel_size), expand_to_pair(stride)
        weights = layer.variable(
            "weights",
            [*kernel, num_outputs, static_channels(inputs, 1 if is_first else -1)],
            weights_initializer,
            weights_regularizer,
        )
        shape, static = tf.shape(inputs), static_shape(inputs)
        sizes = [shape[axis] if size is None else size for axis, size in enumerate(static)]
        height_and_width = [
            sizes[axis + (2 if is_first else 1)] * strides[axis]
            + (max(kernel[axis] - strides[axis], 0) if padding.upper() == "VALID" else 0)
            for axis in (0, 1)
        ]
        image = [num_outputs, *height_and_width] if is_first else [*height_and_width, num_outputs]
        outputs = tf.nn.conv2d_transpose(
            inputs, weights, [sizes[0], *image], strides, padding.upper(), data_format
        )
        outputs = layer.normalize_or_add_bias(
            outputs,
            normalizer_fn,
            normalizer_params,
            biases_initializer,
            biases_regularizer,
            is_first,
        )
        return layer.finish(outputs, activation_fn)


conv2d_transpose = convolution2d_transpose
