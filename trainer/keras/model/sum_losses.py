"""Scales the losses of a Keras model that are sums over examples, for several replicas."""

from collections.abc import Callable
from typing import Any


def make_sum_scaler(loss_class: Any, replicas: int) -> Callable[[Any], Any]:
    """Return a function that multiplies losses with reduction="sum" by the number of replicas.

    The training step computes the mean of the losses of all replicas.
    """

    class SumOverBatchLoss(loss_class):
        """Multiplies the result of another loss, `loss`, by the number of replicas."""

        def __init__(self, loss: Any) -> None:
            super().__init__(name=loss.name, reduction=loss.reduction)
            self._loss = loss

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return self._loss(y_true, y_pred, sample_weight=sample_weight) * float(replicas)

    def scale_sum(loss: Any) -> Any:
        is_sum = isinstance(loss, loss_class) and loss.reduction == "sum"
        return SumOverBatchLoss(loss) if is_sum and replicas > 1 else loss

    return scale_sum
