"""Initializers of weights, which keep the variance of activations about equal in all layers."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType

Initializer = Callable[..., Any]

_MODES = ("FAN_IN", "FAN_OUT", "FAN_AVG")


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32
) -> Initializer:
    """Return an initializer that draws random values of variance 2 / (fan_in + fan_out).

    fan_in and fan_out are the numbers of inputs and outputs of a unit.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.

    Args:
      uniform: True draws from a uniform distribution; False draws from a normal distribution that
        is truncated at two standard deviations.
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = tf.float32,
) -> Initializer:
    """Return an initializer that draws random values of variance factor / n.

    Source of the defaults: He et al., "Delving Deep into Rectifiers", 2015.

    Args:
      uniform: True draws from a uniform distribution; False draws from a normal distribution that
        is truncated at two standard deviations.
    """
    if not dtype.is_floating:
        raise InvalidType(f"An initializer got dtype={dtype.name}. Use a float dtype.")
    if mode not in _MODES:
        raise InvalidSetting(f"An initializer got mode={mode!r}. Use one of {', '.join(_MODES)}.")

    def initialize(shape: Any, dtype: Any = dtype, partition_info: Any = None) -> Any:
        full_shape = shape if partition_info is None else partition_info.full_shape
        count = _fan(tf.TensorShape(full_shape).as_list(), mode)
        if uniform:
            limit = math.sqrt(3.0 * factor / count)
            return tf.compat.v1.random_uniform(shape, -limit, limit, dtype, seed=seed)
        deviation = math.sqrt(1.3 * factor / count)
        return tf.compat.v1.truncated_normal(shape, 0.0, deviation, dtype, seed=seed)

    return initialize


def _fan(shape: list[int], mode: str) -> float:
    """Return the divisor n of the variance, factor / n, in `variance_scaling_initializer`."""
    if not shape:
        return 1.0
    receptive_field = math.prod(shape[:-2])
    fan_in = float(receptive_field * (shape[-2] if len(shape) > 1 else shape[-1]))
    fan_out = float(receptive_field * shape[-1])
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2}[mode]
