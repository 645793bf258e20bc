"""Compiled losses of Keras 3, as a step of one of several replicas calls them."""

from typing import Any

import keras
from keras.src.trainers.compile_utils import CompileLoss


class _CompileLossWithoutMetrics(CompileLoss):
    """A compiled loss that keeps no account of the losses of single outputs."""

    @property
    def metrics(self) -> list[Any]:
        # One for each loss, or it would leave the losses after the last metric out.
        return [None] * len(self._flat_losses or [None])


class _SumOverBatchLoss(keras.losses.Loss):
    """A loss that is a sum over rows, so that its mean over replicas is one over all rows."""

    def __init__(self, loss: Any, replicas: int) -> None:
        super().__init__(name=loss.name, reduction=loss.reduction)
        self._loss, self._replicas = loss, replicas

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self._loss(y_true, y_pred, sample_weight=sample_weight) * float(self._replicas)


def without_loss_metrics(loss: Any, replicas: int) -> Any:
    """A compiled loss to be called in a step; None where none is compiled.

    Args:
      loss: as the model has it.
      replicas: how many there are; losses that are sums are multiplied by that.
    """
    if loss is None:
        return None

    def of_all_rows(each: Any) -> Any:
        is_sum = isinstance(each, keras.losses.Loss) and each.reduction == "sum"
        return _SumOverBatchLoss(each, replicas) if is_sum and replicas > 1 else each

    return _CompileLossWithoutMetrics(
        keras.tree.map_structure(of_all_rows, loss._user_loss),
        loss._user_loss_weights,
        reduction=loss.reduction,
        output_names=loss.output_names,
    )
