"""The layer batch_norm, which normalizes by the mean and variance of a batch.

Source: Ioffe and Szegedy, "Batch Normalization", 2015.
"""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.smart_cond import smart_cond
from tensorflow.python.training import moving_averages

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    is_channels_first,
    layer_scope,
    static_shape,
)

v1 = tf.compat.v1


@add_arg_scope
def batch_norm(
    inputs: Any,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: Any = None,
    param_initializers: Any = None,
    param_regularizers: Any = None,
    updates_collections: Any = v1.GraphKeys.UPDATE_OPS,
    is_training: Any = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: Any = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
    renorm: bool = False,
    renorm_clipping: Any = None,
    renorm_decay: float = 0.99,
    adjustment: Any = None,
) -> Any:
    """Normalize each channel over the batch to mean 0 and variance 1, then scale and shift it.

    Outside of training, the moving averages of the batches' means and variances replace the mean
    and variance of the batch.

    Args:
      decay: factor of the previous moving average in each update, from 0 to 1.
      param_initializers: dict of variable name → initializer; the names are "beta", "gamma",
        "moving_mean" and "moving_variance".
      param_regularizers: dict of "beta" or "gamma" → regularizer.
      updates_collections: collections for the update ops; None runs the updates before the output
        is available.
      fused: whether one fused op normalizes inputs of rank 2 or 4; None means True.
      zero_debias_moving_mean: whether to correct the moving mean for its initial value of 0.
      trainable: whether beta and gamma are trainable.
    """
    _check_options(renorm, adjustment, data_format)
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    axis = 1 if is_channels_first(data_format) else (rank or 0) - 1
    channels = _count_channels(inputs, axis)
    use_fused = fused is not False and batch_weights is None and rank in (2, 4)
    # With some settings, tf.contrib's function used the class tf.layers.BatchNormalization.
    like_layer_class = (
        batch_weights is None
        and updates_collections == v1.GraphKeys.UPDATE_OPS
        and not zero_debias_moving_mean
        and not (use_fused and rank == 2)
    )
    collections = variables_collections, outputs_collections
    dtype = _variables_dtype(inputs)
    with layer_scope(scope, "BatchNorm", inputs, reuse, trainable, *collections, dtype) as layer:
        variables = _make_variables(
            layer,
            channels,
            (center, scale),
            param_initializers or {},
            param_regularizers or {},
            gamma_first=like_layer_class,
        )
        beta, gamma = variables.beta, variables.gamma
        normalize = _normalize_fused if use_fused else _normalize_stepwise

        def normalize_by_batch() -> Any:
            return normalize(inputs, axis, beta, gamma, epsilon, None, batch_weights)

        def normalize_by_averages() -> Any:
            averages = (
                tf.convert_to_tensor(variables.moving_mean),
                tf.convert_to_tensor(variables.moving_variance),
            )
            return normalize(inputs, axis, beta, gamma, epsilon, averages, None)

        training = is_training if isinstance(is_training, tf.Tensor) else bool(is_training)
        outputs, *moments = smart_cond(training, normalize_by_batch, normalize_by_averages)
        outputs.set_shape(inputs.shape)
        if training is not False and (trainable or not like_layer_class):
            updates = _update_averages(variables, moments, training, decay, zero_debias_moving_mean)
            outputs = _register_updates(updates, updates_collections, outputs)
        return layer.finish(outputs, activation_fn)


def _check_options(renorm: bool, adjustment: Any, data_format: str) -> None:
    if renorm or adjustment is not None:
        raise InvalidSetting(
            "batch_norm does not support renorm and adjustment. Leave them out, or use "
            "tf.compat.v1.layers.batch_normalization."
        )
    if data_format not in ("NHWC", "NCHW"):
        raise InvalidSetting(f"batch_norm got data_format={data_format!r}. Use 'NHWC' or 'NCHW'.")


def _count_channels(inputs: Any, axis: int) -> int:
    channels = static_shape(inputs)[axis] if inputs.shape.rank is not None else None
    if channels is None:
        raise InvalidSetting(
            f"batch_norm got inputs of shape {inputs.shape}, whose number of channels is unknown. "
            f"Set the static shape of the inputs."
        )
    return channels


def _variables_dtype(inputs: Any) -> Any:
    """Return the dtype for the variables: the inputs' dtype, but float32 for half precision."""
    is_half = inputs.dtype in (tf.float16, tf.bfloat16)
    return tf.float32 if is_half else inputs.dtype.base_dtype


@dataclass(frozen=True)
class _NormalizationVariables:
    """The parameters of a batch normalization, each a [c] variable for c channels."""

    beta: Any
    gamma: Any
    moving_mean: Any
    moving_variance: Any


def _make_variables(
    layer: LayerBuilder,
    channels: int,
    center_and_scale: tuple[bool, bool],
    initializers: Any,
    regularizers: Any,
    gamma_first: bool,
) -> _NormalizationVariables:
    zeros, ones = v1.zeros_initializer(), v1.ones_initializer()
    center, scale = center_and_scale

    def make_beta() -> Any:
        if not center:
            return tf.zeros([channels], layer.dtype)
        initializer = initializers.get("beta", zeros)
        return layer.variable("beta", [channels], initializer, regularizers.get("beta"))

    def make_gamma() -> Any:
        if not scale:
            return tf.ones([channels], layer.dtype)
        initializer = initializers.get("gamma", ones)
        return layer.variable("gamma", [channels], initializer, regularizers.get("gamma"))

    def make_average(name: str, default: Any) -> Any:
        initializer = initializers.get(name, default)
        return layer.variable(name, [channels], initializer, trainable=False)

    if gamma_first:
        gamma, beta = make_gamma(), make_beta()
    else:
        beta, gamma = make_beta(), make_gamma()
    moving_mean = make_average("moving_mean", zeros)
    return _NormalizationVariables(beta, gamma, moving_mean, make_average("moving_variance", ones))


def _update_averages(
    variables: _NormalizationVariables, moments: Any, training: Any, decay: float, zero_debias: bool
) -> list[Any]:
    mean, variance = moments
    decay = smart_cond(training, lambda: tf.constant(decay), lambda: tf.constant(1.0))
    return [
        moving_averages.assign_moving_average(
            variables.moving_mean, mean, decay, zero_debias=zero_debias
        ),
        moving_averages.assign_moving_average(
            variables.moving_variance, variance, decay, zero_debias=False
        ),
    ]


def _register_updates(updates: list[Any], collections: Any, outputs: Any) -> Any:
    if collections is None:
        with tf.control_dependencies(updates):
            return tf.identity(outputs)
    for update in updates:
        v1.add_to_collections(collections, update)
    return outputs


def _normalize_fused(
    inputs: Any, axis: int, beta: Any, gamma: Any, epsilon: float, averages: Any, weights: Any
) -> Any:
    """Normalize by TensorFlow's fused op, which cannot weight the examples."""
    rank = inputs.shape.rank
    images = tf.reshape(inputs, [-1, 1, 1, static_shape(inputs)[-1]]) if rank == 2 else inputs
    data_format = "NCHW" if rank == 4 and axis == 1 else "NHWC"
    mean, variance = averages or (None, None)
    outputs, *moments = v1.nn.fused_batch_norm(
        images, gamma, beta, mean, variance, epsilon, data_format, is_training=averages is None
    )
    outputs = tf.reshape(outputs, tf.shape(inputs)) if rank == 2 else outputs
    return (outputs, *(averages or moments))


def _normalize_stepwise(
    inputs: Any, axis: int, beta: Any, gamma: Any, epsilon: float, averages: Any, weights: Any
) -> Any:
    """Normalize by basic ops, which allow inputs of any rank and a weight for each example."""
    values = tf.cast(inputs, beta.dtype)
    rank = inputs.shape.rank
    if averages is not None:
        mean, variance = averages
    else:
        axes = [dimension for dimension in range(rank) if dimension != axis]
        if weights is None:
            mean, variance = tf.nn.moments(values, axes)
        else:
            shape = [-1] + [1] * (rank - 1)
            weights = tf.reshape(tf.cast(weights, values.dtype), shape)
            mean, variance = tf.nn.weighted_moments(values, axes, weights)
    shape = [-1 if dimension == axis else 1 for dimension in range(rank)]
    parameters = (tf.reshape(parameter, shape) for parameter in (mean, variance, beta, gamma))
    outputs = tf.nn.batch_normalization(values, *parameters, epsilon)
    return tf.cast(outputs, inputs.dtype), mean, variance
