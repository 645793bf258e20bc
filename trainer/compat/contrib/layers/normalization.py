"""Normalisation over the features of each example."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    is_channels_first,
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
    """Each example with a mean of 0 and a variance of 1, then scaled and moved.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Args:
      inputs: any shape of a known rank.
      center, scale: whether "beta" is added, and "gamma" multiplied with.
      activation_fn: of the result; None for none.
      begin_norm_axis: the first of the dimensions that mean and variance are taken over.
      begin_params_axis: the first of the dimensions that beta and gamma have.
      scope: "LayerNorm" by default.
      reuse, variables_collections, outputs_collections, trainable: see `fully_connected`.

    Raises:
      InvalidSetting: an axis is beyond the shape, or a dimension of beta and gamma unknown.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    first = _positive_axis(begin_norm_axis, inputs)
    shape = inputs.shape[_positive_axis(begin_params_axis, inputs) :]
    if not shape.is_fully_defined():
        raise InvalidSetting(
            f"layer_norm got the shape {inputs.shape}, and needs to know its dimensions from "
            f"begin_params_axis={begin_params_axis} on. Set them."
        )
    with v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        beta = made.variable("beta", shape, v1.zeros_initializer()) if center else None
        gamma = made.variable("gamma", shape, v1.ones_initializer()) if scale else None
        mean, variance = tf.nn.moments(inputs, list(range(first, rank)), keepdims=True)
        # Less would be lost in half precision.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(inputs.shape)
        return made.result(outputs, activation_fn)


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
    """Each group of an example's channels with a mean of 0 and a variance of 1.

    Source: Wu and He, "Group Normalization", 2018.

    Args:
      inputs: any shape of a known rank.
      groups: how many; the number of channels is a multiple of it.
      channels_axis: which dimension the channels are.
      reduction_axes: the other dimensions that mean and variance are taken over.
      epsilon: added to the variance.
      param_initializers: "beta" and "gamma" → initializer.
      scope: "GroupNorm" by default.
      mean_close_to_zero: said of the inputs; the result is the same.
      center, scale, activation_fn, reuse, variables_collections, outputs_collections, trainable:
        see `layer_norm`.

    Raises:
      InvalidSetting: the channels cannot be split so, or an axis is both.
    """
    inputs = tf.convert_to_tensor(inputs)
    axis = _positive_axis(channels_axis, inputs)
    others = sorted(_positive_axis(each, inputs) for each in reduction_axes)
    channels = static_shape(inputs)[axis]
    if channels is None or channels % groups or axis in others:
        raise InvalidSetting(
            f"group_norm got the shape {inputs.shape}, groups={groups}, channels_axis="
            f"{channels_axis} and reduction_axes={tuple(reduction_axes)}. Give groups that divide "
            f"the channels, and other axes than theirs."
        )
    with v1.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        shape = tf.shape(inputs)
        split = [groups, channels // groups]
        whole = tf.concat([shape[:axis], split, shape[axis + 1 :]], 0)
        grouped = tf.reshape(inputs, whole)
        axes = [each + 1 if each > axis else each for each in others] + [axis + 1]
        mean, variance = tf.nn.moments(grouped, axes, keepdims=True)
        aligned = [1] * axis + split + [1] * (inputs.shape.rank - axis - 1)
        beta, gamma = _make_beta_and_gamma(made, channels, center, scale, param_initializers)
        outputs = tf.nn.batch_normalization(
            grouped,
            mean,
            variance,
            None if beta is None else tf.reshape(beta, aligned),
            None if gamma is None else tf.reshape(gamma, aligned),
            epsilon,
        )
        outputs = tf.reshape(outputs, shape)
        outputs.set_shape(inputs.shape)
        return made.result(outputs, activation_fn)


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
    """Each channel of each example with a mean of 0 and a variance of 1.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.

    Args:
      data_format: "NHWC", or "NCHW" for channels first.
      scope: "InstanceNorm" by default.
      inputs, center, scale, epsilon, activation_fn, param_initializers, reuse,
        variables_collections, outputs_collections, trainable: see `group_norm`.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    axis = 1 if is_channels_first(data_format) else rank - 1
    with v1.variable_scope(scope, "InstanceNorm", [inputs], reuse=reuse) as found:
        made = LayerBuilder(
            found, inputs.dtype.base_dtype, trainable, variables_collections, outputs_collections
        )
        channels = static_channels(inputs, axis)
        aligned = [channels if each == axis else 1 for each in range(rank)]
        beta, gamma = _make_beta_and_gamma(made, channels, center, scale, param_initializers)
        axes = [each for each in range(1, rank) if each != axis]
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        outputs = tf.nn.batch_normalization(
            inputs,
            mean,
            variance,
            None if beta is None else tf.reshape(beta, aligned),
            None if gamma is None else tf.reshape(gamma, aligned),
            epsilon,
        )
        outputs.set_shape(inputs.shape)
        return made.result(outputs, activation_fn)


def _make_beta_and_gamma(
    made: LayerBuilder, channels: int, center: bool, scale: bool, initializers: Any
) -> tuple[Any, Any]:
    given = initializers or {}
    zeros, ones = v1.zeros_initializer(), v1.ones_initializer()
    beta = made.variable("beta", [channels], given.get("beta", zeros)) if center else None
    gamma = made.variable("gamma", [channels], given.get("gamma", ones)) if scale else None
    return beta, gamma


def _positive_axis(axis: int, inputs: Any) -> int:
    rank = inputs.shape.rank
    if rank is None or not -rank <= axis < rank:
        raise InvalidSetting(f"axis {axis} is beyond the shape {inputs.shape}. Give another.")
    return axis % rank
