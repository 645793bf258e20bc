"""Copies the compiled losses of a tf_keras model for use in the training step of a TPUEstimator.

The copy updates no metrics, and is scaled for several replicas.
"""

from typing import Any

import tensorflow as tf
import tf_keras

from trainer.keras_internals import LossesContainer, get_private_attribute


class _UnusedMetric:
    """Replaces the metric that averages the total loss, which an estimator's step must not update.

    It has only the method that LossesContainer calls.
    """

    def update_state(self, *arguments: Any, **named: Any) -> None:
        """Ignore the loss of a batch."""


class _LossesContainerWithoutMetrics(LossesContainer):
    """A LossesContainer without the metrics that report the loss of each output."""

    def _create_metrics(self) -> None:
        """Store None in place of the metrics of each output; LossesContainer calls this method."""
        self._per_output_metrics = [None] * len(self._losses)


class _SumOverBatchLoss(tf_keras.losses.Loss):
    """A loss that is a sum over the examples of a replica, times the number of replicas.

    The training step computes the mean of this loss over the replicas. This mean is the sum over
    the examples of the global batch.
    """

    def __init__(self, loss: Any, replicas: int) -> None:
        """Store the loss to scale.

        Args:
          loss: a tf_keras.losses.Loss with reduction="sum".
          replicas: the number of replicas.
        """
        super().__init__(name=loss.name, reduction=loss.reduction)
        self._loss, self._replicas = loss, replicas

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the loss of a replica's batch, times the number of replicas."""
        return self._loss(y_true, y_pred, sample_weight=sample_weight) * float(self._replicas)


def without_loss_metrics(compiled: Any, output_names: Any, replicas: int) -> Any:
    """Return a copy of compiled losses that updates no metrics, for use in an estimator's step.

    Args:
      compiled: the LossesContainer of a model.
      output_names: the names of the model's outputs.
      replicas: the number of replicas. A loss that is a sum over examples is multiplied by it; see
        `_SumOverBatchLoss`.

    Returns:
      A LossesContainer.
    """

    def scale_sum(loss: Any) -> Any:
        is_sum = isinstance(loss, tf_keras.losses.Loss) and loss.reduction == "sum"
        return _SumOverBatchLoss(loss, replicas) if is_sum and replicas > 1 else loss

    return _LossesContainerWithoutMetrics(
        tf.nest.map_structure(scale_sum, get_private_attribute(compiled, "_user_losses")),
        get_private_attribute(compiled, "_user_loss_weights"),
        output_names=output_names,
        total_loss_mean=_UnusedMetric(),
    )
