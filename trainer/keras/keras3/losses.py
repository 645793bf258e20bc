"""Copies the compiled loss of a Keras 3 model for use in the training step of a TPUEstimator.

The copy updates no metrics, and is scaled for several replicas.
"""

from typing import Any

import keras

from trainer.keras_internals import CompileLoss, get_private_attribute


class _CompileLossWithoutMetrics(CompileLoss):
    """A CompileLoss without the metrics that report the loss of each output.

    The training and evaluation steps of an estimator must not update metrics.
    """

    @property
    def metrics(self) -> list[Any]:
        """Return None in place of the metric of each loss: CompileLoss needs one item per loss."""
        return [None] * len(self._flat_losses or [None])


class _SumOverBatchLoss(keras.losses.Loss):
    """A loss that is a sum over the examples of a replica, times the number of replicas.

    The training step computes the mean of this loss over the replicas. This mean is the sum over
    the examples of the global batch.
    """

    def __init__(self, loss: Any, replicas: int) -> None:
        """Store the loss to scale.

        Args:
          loss: a keras.losses.Loss with reduction="sum".
          replicas: the number of replicas.
        """
        super().__init__(name=loss.name, reduction=loss.reduction)
        self._loss, self._replicas = loss, replicas

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the loss of a replica's batch, times the number of replicas."""
        return self._loss(y_true, y_pred, sample_weight=sample_weight) * float(self._replicas)


def without_loss_metrics(compiled: Any, replicas: int) -> Any:
    """Return a copy of a compiled loss that updates no metrics, for use in an estimator's step.

    Args:
      compiled: the CompileLoss of a model, or None.
      replicas: the number of replicas. A loss that is a sum over examples is multiplied by it; see
        `_SumOverBatchLoss`.

    Returns:
      A CompileLoss; None if `compiled` is None.
    """
    if compiled is None:
        return None

    def scale_sum(loss: Any) -> Any:
        is_sum = isinstance(loss, keras.losses.Loss) and loss.reduction == "sum"
        return _SumOverBatchLoss(loss, replicas) if is_sum and replicas > 1 else loss

    return _CompileLossWithoutMetrics(
        keras.tree.map_structure(scale_sum, get_private_attribute(compiled, "_user_loss")),
        get_private_attribute(compiled, "_user_loss_weights"),
        reduction=compiled.reduction,
        output_names=compiled.output_names,
    )
