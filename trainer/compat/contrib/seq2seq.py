"""tf.contrib.seq2seq: the loss of a sequence."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib_names import missing_names

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Any = None,
    name: str | None = None,
) -> Any:
    """The weighted cross entropy of each step of sequences, and means of it.

    Args:
      logits: [b, steps, classes].
      targets: [b, steps] int32 or int64.
      weights: [b, steps]; 0 for padding.
      average_across_timesteps, average_across_batch: the dimensions that a mean is taken over,
        weights counted.
      sum_over_timesteps, sum_over_batch: the dimensions that a sum is taken over, divided by how
        many weights there are not 0.
      softmax_loss_function: takes labels and logits by name, both flat; the sparse cross entropy
        by default.
      name: of the ops.

    Returns:
      [], [b], [steps] or [b, steps].
    """
    logits = tf.convert_to_tensor(logits)
    if logits.shape.rank != 3:
        raise InvalidSetting(
            f"sequence_loss got logits of the shape {logits.shape}. Give [batch, steps, classes]."
        )
    if (average_across_timesteps or average_across_batch) and (
        sum_over_timesteps or sum_over_batch
    ):
        raise InvalidSetting(
            "sequence_loss is to take both means and sums. Give either average_across_... or "
            "sum_over_..."
        )
    with tf.name_scope(name or "sequence_loss"):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        flat = function(
            labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, logits.shape[-1]])
        )
        weights = tf.cast(weights, flat.dtype)
        losses = tf.reshape(flat, tf.shape(weights)) * weights
        averaged = [0] * average_across_batch + [1] * average_across_timesteps
        summed = [0] * sum_over_batch + [1] * sum_over_timesteps
        if averaged:
            return _divide_sums(losses, weights, averaged)
        if summed:
            counted = tf.cast(tf.not_equal(weights, 0), flat.dtype)
            return _divide_sums(losses, counted, summed)
        return losses


def _divide_sums(losses: Any, counts: Any, axes: list[int]) -> Any:
    return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), tf.reduce_sum(counts, axes))


__getattr__ = missing_names.getattr_for("tf.contrib.seq2seq", __all__)
