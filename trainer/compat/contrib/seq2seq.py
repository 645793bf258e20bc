"""tf.contrib.seq2seq: sequence_loss, the cross entropy of sequences of class ids."""

from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names

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
    """Compute the weighted cross entropy of sequences, averaged or summed as requested.

    Args:
      logits: float [b, steps, classes].
      targets: int32 or int64 [b, steps].
      weights: float [b, steps]; 0 for padding.
      sum_over_timesteps: whether to sum over the steps and divide by the number of weights that are
        not 0.
      sum_over_batch: whether to sum over the batch and divide by the number of weights that are not
        0.
      softmax_loss_function: function of the keyword arguments labels, [b * steps], and logits,
        [b * steps, classes]; tf.nn.sparse_softmax_cross_entropy_with_logits by default.

    Returns:
      A float tensor of shape [], [b], [steps] or [b, steps], without the dimensions that are
      averaged or summed.
    """
    logits = tf.convert_to_tensor(logits)
    if logits.shape.rank != 3:
        raise InvalidSetting(
            f"sequence_loss got logits of shape {logits.shape}. Pass [batch, steps, classes]."
        )
    if (average_across_timesteps or average_across_batch) and (
        sum_over_timesteps or sum_over_batch
    ):
        raise InvalidSetting(
            "sequence_loss got both average_across_... and sum_over_... arguments. Set only one "
            "of these kinds."
        )
    with tf.name_scope(name or "sequence_loss"):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        flat_losses = function(
            labels=tf.reshape(targets, [-1]), logits=tf.reshape(logits, [-1, logits.shape[-1]])
        )
        weights = tf.cast(weights, flat_losses.dtype)
        losses = tf.reshape(flat_losses, tf.shape(weights)) * weights
        average_axes = [0] * average_across_batch + [1] * average_across_timesteps
        sum_axes = [0] * sum_over_batch + [1] * sum_over_timesteps
        if average_axes:
            return _divide_sums(losses, weights, average_axes)
        if sum_axes:
            is_counted = tf.cast(tf.not_equal(weights, 0), flat_losses.dtype)
            return _divide_sums(losses, is_counted, sum_axes)
        return losses


def _divide_sums(losses: Any, counts: Any, axes: list[int]) -> Any:
    return tf.math.divide_no_nan(tf.reduce_sum(losses, axes), tf.reduce_sum(counts, axes))


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.seq2seq", __all__)
