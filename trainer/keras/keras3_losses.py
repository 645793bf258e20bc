"""Copies the compiled loss of a Keras 3 model for use in the training step of a TPUEstimator.

The copy updates no metrics, and is scaled for several replicas.
"""

from typing import Any

import keras

from trainer.keras.model.sum_losses import make_sum_scaler
from trainer.keras_internals import CompileLoss, get_private_attribute


class _CompileLossWithoutMetrics(CompileLoss):
    """A CompileLoss without the metrics that report the loss of each output."""

    @property
    def metrics(self) -> list[Any]:
        """Return a list with None for each loss: CompileLoss needs one item per loss."""
        return [None] * len(self._flat_losses or [None])


def without_loss_metrics(compiled: Any, replicas: int) -> Any:
    """Return a copy of a compiled loss that updates no metrics, for use in an estimator's step.

    Args:
      replicas: the number of replicas. A loss that is a sum over examples is multiplied by this
        number; see `make_sum_scaler`.
    """
    if compiled is None:
        return None

    scale_sum = make_sum_scaler(keras.losses.Loss, replicas)
    return _CompileLossWithoutMetrics(
        keras.tree.map_structure(scale_sum, get_private_attribute(compiled, "_user_loss")),
        get_private_attribute(compiled, "_user_loss_weights"),
        reduction=compiled.reduction,
        output_names=compiled.output_names,
    )
