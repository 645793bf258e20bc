"""Initial values that keep the scale of signals about the same from layer to layer."""

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
    """Values whose variance is 2 / (inputs + outputs).

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.

    Args:
      uniform: whether they are uniform; else normal, cut at two standard deviations.
      seed: of the random numbers.
      dtype: float type of the values where the caller says none.
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = tf.float32,
) -> Initializer:
    """Values whose variance is factor / n.

    Source: He et al., "Delving Deep into Rectifiers", 2015, for the defaults.

    Args:
      factor: multiple of the variance.
      mode: what n is: "FAN_IN" the inputs of a unit, "FAN_OUT" its outputs, "FAN_AVG" their mean.
      uniform: whether they are uniform; else normal, cut at two standard deviations, and drawn
        with a variance 1.3 times as large in return.
      seed: of the random numbers.
      dtype: float type of the values where the caller says none.

    Raises:
      InvalidType: dtype is no float type.
      InvalidSetting: the mode is another.
    """
    if not dtype.is_floating:
        raise InvalidType(f"the dtype of an initializer is {dtype.name}. Give a float type.")
    if mode not in _MODES:
        raise InvalidSetting(f"the mode of an initializer is {mode!r}. Give {', '.join(_MODES)}.")

    def initialize(shape: Any, dtype: Any = dtype, partition_info: Any = None) -> Any:
        whole = shape if partition_info is None else partition_info.full_shape
        count = _fan(tf.TensorShape(whole).as_list(), mode)
        if uniform:
            limit = math.sqrt(3.0 * factor / count)
            return tf.compat.v1.random_uniform(shape, -limit, limit, dtype, seed=seed)
        deviation = math.sqrt(1.3 * factor / count)
        return tf.compat.v1.truncated_normal(shape, 0.0, deviation, dtype, seed=seed)

    return initialize


def _fan(shape: list[int], mode: str) -> float:
    if not shape:
        return 1.0
    places = math.prod(shape[:-2])
    fan_in = float(places * (shape[-2] if len(shape) > 1 else shape[-1]))
    fan_out = float(places * shape[-1])
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2}[mode]
