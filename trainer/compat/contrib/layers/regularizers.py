"""Regularizers: functions of weights that return a scalar loss."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting

Regularizer = Callable[[Any], Any]

v1 = tf.compat.v1


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return a regularizer with the loss scale * sum(|w|); the loss is None if scale is 0.0."""
    return _make_regularizer(
        scale, scope, "l1_regularizer", lambda weights: tf.reduce_sum(tf.abs(weights))
    )


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return a regularizer with the loss scale * sum(w²) / 2; the loss is None if scale is 0.0."""
    return _make_regularizer(scale, scope, "l2_regularizer", tf.nn.l2_loss)


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Regularizer:
    """Return a regularizer whose loss is the sum of an L1 loss and an L2 loss of the weights.

    Args:
      scale_l1: factor of the L1 loss, sum(|w|); 0.0 for no such loss.
      scale_l2: factor of the L2 loss, sum(w²) / 2; 0.0 for no such loss.
    """
    scope = scope or "l1_l2_regularizer"
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope)


def sum_regularizer(
    regularizer_list: Sequence[Regularizer | None], scope: str | None = None
) -> Regularizer | Any:
    """Return a regularizer whose loss is the sum of several regularizers' losses.

    Args:
      regularizer_list: the regularizers; elements that are None are left out.
    """
    present = [regularizer for regularizer in regularizer_list if regularizer is not None]
    if not present:
        return None

    def regularize(weights: Any) -> Any:
        with v1.name_scope(scope, "sum_regularizer", [weights]) as name:
            losses = [loss for regularizer in present if (loss := regularizer(weights)) is not None]
            return tf.add_n(losses, name=name) if losses else None

    return regularize


def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> Any:
    """Return the sum of the regularization losses of weights, a float scalar.

    The sum is also added to tf.GraphKeys.REGULARIZATION_LOSSES.

    Args:
      regularizer: function that maps weights to a scalar, or to None for a loss of 0.
      weights_list: list of weights; those in tf.GraphKeys.WEIGHTS by default.
    """
    weights_list = weights_list or v1.get_collection(v1.GraphKeys.WEIGHTS)
    if not weights_list:
        raise InvalidSetting("apply_regularization found no weights. Pass weights_list.")
    losses = []
    for weights in weights_list:
        loss = regularizer(weights)
        if loss is not None and loss.shape.rank != 0:
            raise InvalidSetting(
                f"A regularizer returned shape {loss.shape}. It must return a scalar."
            )
        losses.append(tf.constant(0.0) if loss is None else loss)
    total = tf.add_n(losses)
    v1.add_to_collection(v1.GraphKeys.REGULARIZATION_LOSSES, total)
    return total


def _make_regularizer(
    scale: float, scope: str | None, name: str, loss_fn: Callable[[Any], Any]
) -> Regularizer:
    if isinstance(scale, numbers.Integral) or not isinstance(scale, numbers.Real) or scale < 0:
        raise InvalidSetting(f"{name} got scale={scale!r}. Pass a float of at least 0.")
    if scale == 0.0:
        return lambda weights: None

    def regularize(weights: Any) -> Any:
        with v1.name_scope(scope, name, [weights]) as name_scope:
            loss = loss_fn(weights)
            return tf.multiply(tf.cast(scale, loss.dtype), loss, name=name_scope)

    return regularize
