"""The compiled losses of a tf_keras model, without metrics and scaled for several replicas."""

from typing import Any

import tensorflow as tf
import tf_keras

from trainer.keras_internals import LossesContainer, get_private_attribute


class _UnusedMetric:
    """Replaces the metric that averages the total loss, because no step reads its value."""

    def update_state(self, *arguments: Any, **named: Any) -> None:
        """Ignore the loss of a batch, with which LossesContainer would update the metric."""


class _LossesContainerWithoutMetrics(LossesContainer):
    """A LossesContainer that has no metrics for the losses of the individual outputs."""

    def _create_metrics(self) -> None:
        """Create no metric for any output."""
        self._per_output_metrics = [None] * len(self._losses)


class _SumOverBatchLoss(tf_keras.losses.Loss):
    """A loss that sums over the rows of a replica, multiplied by the number of replicas.

    The mean of this loss over the replicas is the sum over the rows of the global batch.
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
        """Return the sum of the loss over a replica's rows, times the number of replicas."""
        return self._loss(y_true, y_pred, sample_weight=sample_weight) * float(self._replicas)


def without_loss_metrics(compiled: Any, output_names: Any, replicas: int) -> Any:
    """Return a copy of compiled losses that updates no metrics, for use in an estimator's step.

    Args:
      compiled: the LossesContainer of a model.
      output_names: the names of the model's outputs.
      replicas: the number of replicas, by which a loss that is a sum over rows is multiplied.

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
