"""Normalisation over the examples of a batch."""

from typing import Any

import tensorflow as tf
from tensorflow.python.framework.smart_cond import smart_cond
from tensorflow.python.training import moving_averages

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.framework.arg_scope import add_arg_scope
from trainer.compat.contrib.layers.layer_builder import (
    LayerBuilder,
    is_channels_first,
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
    """Each channel with a mean of 0 and a variance of 1 over the batch, then scaled and moved.

    Outside of training, mean and variance are moving averages of those of the batches. Their
    updates have to be run: they are in tf.GraphKeys.UPDATE_OPS unless updates_collections is None.
    Source: Ioffe and Szegedy, "Batch Normalization", 2015.

    Args:
      inputs: [b, ..., c]; [b, c, ...] with data_format "NCHW".
      decay: how much of the moving averages each step keeps.
      center, scale: whether "beta" is added, and "gamma" multiplied with.
      epsilon: added to the variance.
      param_initializers: "beta", "gamma", "moving_mean", "moving_variance" → initializer.
      param_regularizers: "beta", "gamma" → regularizer.
      updates_collections: where the updates go; None makes them before the result is there.
      is_training: a bool, or a tensor of one.
      batch_weights: [b] weights of the examples in mean and variance.
      fused: whether TensorFlow's one op does it all, as it does for [b, h, w, c] and [b, c]
        unless this is False or there are batch_weights. Its moving variance is that of a sample:
        n / (n - 1) times that of the batch.
      data_format: "NHWC", or "NCHW" for channels first.
      zero_debias_moving_mean: whether the moving mean does without its start from zero.
      scope: "BatchNorm" by default.
      renorm, renorm_clipping, renorm_decay, adjustment: not supplied.
      trainable: whether beta and gamma are; if not, with all else left as it is, the moving
        averages stay as they are too, except for [b, c].
      activation_fn, reuse, variables_collections, outputs_collections: see `fully_connected`.

    Raises:
      InvalidSetting: renorm or adjustment is asked for, or the channels are unknown.
    """
    if renorm or adjustment is not None:
        raise InvalidSetting(
            "batch_norm got renorm or an adjustment, which are not supplied. Leave them out, or "
            "use tf.compat.v1.layers.batch_normalization."
        )
    if data_format not in ("NHWC", "NCHW"):
        raise InvalidSetting(f"batch_norm has the data_format {data_format!r}. Give NHWC or NCHW.")
    inputs = tf.convert_to_tensor(inputs)
    is_first, rank = is_channels_first(data_format), inputs.shape.rank
    axis = 1 if is_first else (rank or 0) - 1
    channels = static_shape(inputs)[axis] if rank is not None else None
    if channels is None:
        raise InvalidSetting(f"batch_norm got the shape {inputs.shape}. Set its channels.")
    with v1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as found:
        # In half precision averages would stand still.
        is_half = inputs.dtype in (tf.float16, tf.bfloat16)
        dtype = tf.float32 if is_half else inputs.dtype.base_dtype
        made = LayerBuilder(found, dtype, trainable, variables_collections, outputs_collections)
        parts = _Parts(made, channels, param_initializers or {}, param_regularizers or {})
        is_fused = fused is not False and batch_weights is None and rank in (2, 4)
        as_layer = (
            batch_weights is None
            and updates_collections == v1.GraphKeys.UPDATE_OPS
            and not zero_debias_moving_mean
            and not (is_fused and rank == 2)
        )
        beta, gamma = parts.beta_and_gamma(center, scale, gamma_first=as_layer)
        mean = parts.of("moving_mean", v1.zeros_initializer(), trainable=False)
        variance = parts.of("moving_variance", v1.ones_initializer(), trainable=False)
        normalise = _normalize_fused if is_fused else _normalize_stepwise

        def with_batch() -> Any:
            return normalise(inputs, axis, beta, gamma, epsilon, None, batch_weights)

        def with_averages() -> Any:
            moving = (tf.convert_to_tensor(mean), tf.convert_to_tensor(variance))
            return normalise(inputs, axis, beta, gamma, epsilon, moving, None)

        training = is_training if isinstance(is_training, tf.Tensor) else bool(is_training)
        outputs, batch_mean, batch_variance = smart_cond(training, with_batch, with_averages)
        outputs.set_shape(inputs.shape)
        if training is not False and (trainable or not as_layer):
            kept = smart_cond(training, lambda: tf.constant(decay), lambda: tf.constant(1.0))
            updates = [
                moving_averages.assign_moving_average(
                    mean, batch_mean, kept, zero_debias=zero_debias_moving_mean
                ),
                moving_averages.assign_moving_average(
                    variance, batch_variance, kept, zero_debias=False
                ),
            ]
            if updates_collections is None:
                with tf.control_dependencies(updates):
                    outputs = tf.identity(outputs)
            else:
                for each in updates:
                    v1.add_to_collections(updates_collections, each)
        return made.result(outputs, activation_fn)


class _Parts:
    """Makes the four variables, one number for each channel."""

    def __init__(
        self, made: LayerBuilder, channels: int, initializers: Any, regularizers: Any
    ) -> None:
        self._made, self._channels = made, channels
        self._initializers, self._regularizers = initializers, regularizers

    def beta_and_gamma(self, center: bool, scale: bool, gamma_first: bool) -> tuple[Any, Any]:
        """Both of them, in the order in which a program finds them among its variables."""
        makers: dict[str, tuple[bool, Any, Any]] = {
            "beta": (center, v1.zeros_initializer(), tf.zeros),
            "gamma": (scale, v1.ones_initializer(), tf.ones),
        }
        made: dict[str, Any] = {}
        for name in ("gamma", "beta") if gamma_first else ("beta", "gamma"):
            is_wanted, initializer, constant = makers[name]
            if is_wanted:
                made[name] = self.of(name, initializer)
            else:
                made[name] = constant([self._channels], self._made.dtype)
        return made["beta"], made["gamma"]

    def of(self, name: str, initializer: Any, trainable: bool = True) -> Any:
        return self._made.variable(
            name,
            [self._channels],
            self._initializers.get(name, initializer),
            self._regularizers.get(name) if trainable else None,
            trainable,
        )


def _normalize_fused(
    inputs: Any, axis: int, beta: Any, gamma: Any, epsilon: float, moving: Any, weights: Any
) -> Any:
    """The result, and the mean and the variance that moving averages take in; of one op."""
    rank = inputs.shape.rank
    flat = tf.reshape(inputs, [-1, 1, 1, static_shape(inputs)[-1]]) if rank == 2 else inputs
    data_format = "NCHW" if rank == 4 and axis == 1 else "NHWC"
    mean, variance = moving or (None, None)
    outputs, *moments = v1.nn.fused_batch_norm(
        flat, gamma, beta, mean, variance, epsilon, data_format, is_training=moving is None
    )
    outputs = tf.reshape(outputs, tf.shape(inputs)) if rank == 2 else outputs
    return (outputs, *(moving or moments))


def _normalize_stepwise(
    inputs: Any, axis: int, beta: Any, gamma: Any, epsilon: float, moving: Any, weights: Any
) -> Any:
    """The same of several ops, for any rank and with weights."""
    values = tf.cast(inputs, beta.dtype)
    rank = inputs.shape.rank
    if moving is not None:
        mean, variance = moving
    else:
        axes = [each for each in range(rank) if each != axis]
        if weights is None:
            mean, variance = tf.nn.moments(values, axes)
        else:
            shape = [-1] + [1] * (rank - 1)
            weights = tf.reshape(tf.cast(weights, values.dtype), shape)
            mean, variance = tf.nn.weighted_moments(values, axes, weights)
    aligned = [-1 if each == axis else 1 for each in range(rank)]
    outputs = tf.nn.batch_normalization(
        values, *(tf.reshape(each, aligned) for each in (mean, variance, beta, gamma)), epsilon
    )
    return tf.cast(outputs, inputs.dtype), mean, variance
