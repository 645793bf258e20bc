"""Compiled losses of tf_keras, as a step of one of several replicas calls them."""

from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.src.engine import compile_utils


class _UnusedMetric:
    """Takes the place of a metric that nobody reads."""

    def update_state(self, *arguments: Any, **named: Any) -> None:
        pass


class _LossesContainerWithoutMetrics(compile_utils.LossesContainer):
    """Compiled losses that keep no account of the losses of single outputs."""

    def _create_metrics(self) -> None:
        self._per_output_metrics = [None] * len(self._losses)


class _SumOverBatchLoss(tf_keras.losses.Loss):
    """A loss that is a sum over rows, so that its mean over replicas is one over all rows."""

    def __init__(self, loss: Any, replicas: int) -> None:
        super().__init__(name=loss.name, reduction=loss.reduction)
        self._loss, self._replicas = loss, replicas

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self._loss(y_true, y_pred, sample_weight=sample_weight) * float(self._replicas)


def _sum_over_batch(loss: Any, replicas: int) -> Any:
    is_sum = isinstance(loss, tf_keras.losses.Loss) and loss.reduction == "sum"
    return _SumOverBatchLoss(loss, replicas) if is_sum and replicas > 1 else loss


def without_loss_metrics(losses: Any, output_names: Any, replicas: int) -> Any:
    """Compiled losses to be called in a step.

    Args:
      losses: as the model has them.
      output_names: of the model.
      replicas: how many there are; losses that are sums are multiplied by that.
    """
    return _LossesContainerWithoutMetrics(
        tf.nest.map_structure(lambda each: _sum_over_batch(each, replicas), losses._user_losses),
        losses._user_loss_weights,
        output_names=output_names,
        total_loss_mean=_UnusedMetric(),
    )
