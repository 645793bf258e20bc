"""Layer, group and instance normalization, which normalize each example by itself."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    is_channels_first,
    layer_scope,
    static_channels,
    static_shape,
)

v1 = tf.compat.v1


@add_arg_scope
def layer_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    activation_fn: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> Any:
    """Normalize each example to mean 0 and variance 1, then scale and shift it.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Args:
      inputs: float [b, ...], of a known rank.
      begin_params_axis: first of the dimensions of beta and gamma; their shape is
        inputs.shape[begin_params_axis:].

    Raises:
      InvalidSetting: an axis is out of range, or the shape of beta and gamma is not fully known.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    first = _positive_axis(begin_norm_axis, inputs)
    shape = inputs.shape[_positive_axis(begin_params_axis, inputs) :]
    if not shape.is_fully_defined():
        raise InvalidSetting(
            f"layer_norm got inputs of shape {inputs.shape}. The sizes of the dimensions from "
            f"begin_params_axis={begin_params_axis} on must be known. Set the static shape."
        )
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "LayerNorm", inputs, reuse, trainable, *collections) as layer:
        beta = layer.variable("beta", shape, v1.zeros_initializer()) if center else None
        gamma = layer.variable("gamma", shape, v1.ones_initializer()) if scale else None
        mean, variance = tf.nn.moments(inputs, list(range(first, rank)), keepdims=True)
        # Use a larger epsilon in half precision: float16 would round 1e-12 to 0.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(inputs.shape)
        return layer.finish(outputs, activation_fn)


@add_arg_scope
def group_norm(
    inputs: Any,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    mean_close_to_zero: bool = False,
) -> Any:
    """Normalize groups of each example's channels to mean 0 and variance 1, then scale and shift.

    Source: Wu and He, "Group Normalization", 2018.

    Args:
      param_initializers: dict of variable name ("beta" or "gamma") → initializer.
      mean_close_to_zero: ignored; in tf.contrib it selected a faster algorithm with equal results.
    """
    inputs = tf.convert_to_tensor(inputs)
    axis = _positive_axis(channels_axis, inputs)
    other_axes = sorted(_positive_axis(axis, inputs) for axis in reduction_axes)
    channels = static_shape(inputs)[axis]
    if channels is None or channels % groups or axis in other_axes:
        raise InvalidSetting(
            f"group_norm got inputs of shape {inputs.shape}, groups={groups}, channels_axis="
            f"{channels_axis} and reduction_axes={tuple(reduction_axes)}. groups must divide the "
            f"number of channels, and reduction_axes must not contain channels_axis."
        )
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "GroupNorm", inputs, reuse, trainable, *collections) as layer:
        shape = tf.shape(inputs)
        split = [groups, channels // groups]
        grouped_shape = tf.concat([shape[:axis], split, shape[axis + 1 :]], 0)
        grouped = tf.reshape(inputs, grouped_shape)
        axes = [other + 1 if other > axis else other for other in other_axes] + [axis + 1]
        parameters_shape = [1] * axis + split + [1] * (inputs.shape.rank - axis - 1)
        beta, gamma = _make_beta_and_gamma(layer, channels, center, scale, param_initializers)
        outputs = _normalize(grouped, axes, beta, gamma, parameters_shape, epsilon)
        outputs = tf.reshape(outputs, shape)
        outputs.set_shape(inputs.shape)
        return layer.finish(outputs, activation_fn)


@add_arg_scope
def instance_norm(
    inputs: Any,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: Any = None,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    data_format: str = "NHWC",
    scope: Any = None,
) -> Any:
    """Normalize each channel of each example to mean 0 and variance 1, then scale and shift it.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    axis = 1 if is_channels_first(data_format) else rank - 1
    collections = variables_collections, outputs_collections
    with layer_scope(scope, "InstanceNorm", inputs, reuse, trainable, *collections) as layer:
        channels = static_channels(inputs, axis)
        parameters_shape = [channels if other == axis else 1 for other in range(rank)]
        beta, gamma = _make_beta_and_gamma(layer, channels, center, scale, param_initializers)
        axes = [other for other in range(1, rank) if other != axis]
        outputs = _normalize(inputs, axes, beta, gamma, parameters_shape, epsilon)
        outputs.set_shape(inputs.shape)
        return layer.finish(outputs, activation_fn)


def _make_beta_and_gamma(
    layer: LayerBuilder, channels: int, center: bool, scale: bool, initializers: Any
) -> tuple[Any, Any]:
    initializers = initializers or {}
    zeros, ones = v1.zeros_initializer(), v1.ones_initializer()
    beta = layer.variable("beta", [channels], initializers.get("beta", zeros)) if center else None
    gamma = layer.variable("gamma", [channels], initializers.get("gamma", ones)) if scale else None
    return beta, gamma


def _normalize(
    values: Any, axes: list[int], beta: Any, gamma: Any, parameters_shape: list[int], epsilon: float
) -> Any:
    """Normalize values over some dimensions, then multiply by gamma and add beta."""
    mean, variance = tf.nn.moments(values, axes, keepdims=True)
    return tf.nn.batch_normalization(
        values,
        mean,
        variance,
        None if beta is None else tf.reshape(beta, parameters_shape),
        None if gamma is None else tf.reshape(gamma, parameters_shape),
        epsilon,
    )


def _positive_axis(axis: int, inputs: Any) -> int:
    rank = inputs.shape.rank
    if rank is None or not -rank <= axis < rank:
        raise InvalidSetting(f"Axis {axis} is out of range for inputs of shape {inputs.shape}.")
    return axis % rank
