"""Layers of filters that move over places."""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.initializers import xavier_initializer
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    add_channel_bias,
    expand_sizes,
    expand_to_pair,
    is_channels_first,
    static_channels,
    static_shape,
)

v1 = tf.compat.v1


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
    """Filters over one, two or three dimensions.

    Args:
      inputs: [b, places ..., c]; [b, c, places ...] with data_format "NC...".
      num_outputs: filters.
      kernel_size, stride, rate: of filters, in places; a number, or one for each dimension.
      padding: "SAME" or "VALID".
      data_format: "NWC", "NHWC", "NDHWC" or the like with channels first; None for channels last.
      weights_initializer, weights_regularizer: of "weights", [kernel ..., c, num_outputs].
      scope: "Conv" by default.
      conv_dims: how many dimensions there must be; None for any.
      activation_fn, normalizer_fn, normalizer_params, biases_initializer, biases_regularizer,
        reuse, variables_collections, outputs_collections, trainable: see `fully_connected`.
    """
    inputs = tf.convert_to_tensor(inputs)
    dimensions = (inputs.shape.rank or 0) - 2
    if dimensions not in (1, 2, 3) or conv_dims not in (None, dimensions):
        raise InvalidSetting(
            f"a convolution of {conv_dims or '1 to 3'} dimensions got the shape {inputs.shape}. "
            f"Give the batch, the dimensions and the channels."
        )
    is_first = is_channels_first(data_format)
    with v1.variable_scope(scope, "Conv", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        weights = made.variable(
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
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            biases = made.variable("biases", [num_outputs], biases_initializer, biases_regularizer)
            outputs = add_channel_bias(outputs, biases, is_first)
        return made.result(outputs, activation_fn)


def _convolution_over(dimensions: int) -> Callable[..., Any]:
    """The convolution over so many dimensions, whose defaults are scoped by themselves."""

    def layer(*args: Any, **kwargs: Any) -> Any:
        return convolution.__wrapped__(  # type: ignore[attr-defined]
            *args, conv_dims=dimensions, **kwargs
        )

    # `repeat` names scopes after it.
    layer.__name__ = f"convolution{dimensions}d"
    layer.__doc__ = f"Filters over {dimensions} dimensions; see `convolution`."
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
    """The transpose of a convolution: places become more, not fewer.

    Args:
      weights_initializer, weights_regularizer: of "weights", [kernel ..., num_outputs, c].
      scope: "Conv2d_transpose" by default.
      inputs, num_outputs, kernel_size, stride, padding, data_format, activation_fn,
        normalizer_fn, normalizer_params, biases_initializer, biases_regularizer, reuse,
        variables_collections, outputs_collections, trainable: see `convolution`.
    """
    inputs = tf.convert_to_tensor(inputs)
    is_first = is_channels_first(data_format)
    with v1.variable_scope(scope, "Conv2d_transpose", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        kernel, strides = expand_to_pair(kernel_size), expand_to_pair(stride)
        weights = made.variable(
            "weights",
            [*kernel, num_outputs, static_channels(inputs, 1 if is_first else -1)],
            weights_initializer,
            weights_regularizer,
        )
        shape, static = tf.shape(inputs), static_shape(inputs)
        known = [shape[each] if size is None else size for each, size in enumerate(static)]
        places = [
            known[each + (2 if is_first else 1)] * strides[each]
            + (max(kernel[each] - strides[each], 0) if padding.upper() == "VALID" else 0)
            for each in (0, 1)
        ]
        whole = [num_outputs, *places] if is_first else [*places, num_outputs]
        outputs = tf.nn.conv2d_transpose(
            inputs, weights, [known[0], *whole], strides, padding.upper(), data_format
        )
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            biases = made.variable("biases", [num_outputs], biases_initializer, biases_regularizer)
            outputs = add_channel_bias(outputs, biases, is_first)
        return made.result(outputs, activation_fn)


conv2d_transpose = convolution2d_transpose
