"""Losses that keep weights small."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting

Regularizer = Callable[[Any], Any]

v1 = tf.compat.v1


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """The sum of absolute weights, times the scale; a scale of 0 gives no loss."""
    return _make_regularizer(
        scale, scope, "l1_regularizer", lambda each: tf.reduce_sum(tf.abs(each))
    )


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Half the sum of squared weights, times the scale; a scale of 0 gives no loss."""
    return _make_regularizer(scale, scope, "l2_regularizer", tf.nn.l2_loss)


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Regularizer:
    """Both of them added."""
    scope = scope or "l1_l2_regularizer"
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def sum_regularizer(
    regularizer_list: Sequence[Regularizer | None], scope: str | None = None
) -> Regularizer | Any:
    """The losses of several regularizers added; None where there are none."""
    present = [each for each in regularizer_list if each is not None]
    if not present:
        return None

    def regularize(weights: Any) -> Any:
        with v1.name_scope(scope, "sum_regularizer", [weights]) as whole:
            losses = [loss for each in present if (loss := each(weights)) is not None]
            return tf.add_n(losses, name=whole) if losses else None

    return regularize


def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Any:
    """The losses of weights added, a scalar that is in tf.GraphKeys.REGULARIZATION_LOSSES too.

    Args:
      regularizer: weights → scalar; None for a loss of 0.
      weights_list: those of tf.GraphKeys.WEIGHTS by default.

    Raises:
      InvalidSetting: there are no weights, or the regularizer gives no scalar.
    """
    weights_list = weights_list or v1.get_collection(v1.GraphKeys.WEIGHTS)
    if not weights_list:
        raise InvalidSetting("apply_regularization found no weights. Give weights_list.")
    losses = []
    for each in weights_list:
        loss = regularizer(each)
        if loss is not None and loss.shape.rank != 0:
            raise InvalidSetting(f"a regularizer gave the shape {loss.shape}. Give a scalar.")
        losses.append(tf.constant(0.0) if loss is None else loss)
    total = tf.add_n(losses)
    v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, total)
    return total


def _make_regularizer(
    scale: float, scope: str | None, name: str, of: Callable[[Any], Any]
) -> Regularizer:
    if isinstance(scale, numbers.Integral) or not isinstance(scale, numbers.Real) or scale < 0:
        raise InvalidSetting(f"{name} has the scale {scale!r}. Give a float of at least 0.")
    if scale == 0.0:
        return lambda weights: None

    def regularize(weights: Any) -> Any:
        with v1.name_scope(scope, name, [weights]) as whole:
            loss = of(weights)
            return tf.multiply(tf.cast(scale, loss.dtype), loss, name=whole)

    return regularize
