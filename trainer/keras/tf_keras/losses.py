"""Copies the compiled losses of a tf_keras model for use in the training step of a TPUEstimator.

The copy updates no metrics, and is scaled for several replicas.
"""

from typing import Any

import tensorflow as tf
import tf_keras

from trainer.keras.model.sum_losses import make_sum_scaler
from trainer.keras_internals import LossesContainer, get_private_attribute


class _UnusedMetric:
    """Replaces the metric that averages the total loss, and does nothing."""

    def update_state(self, *arguments: Any, **named: Any) -> None:
        """Ignore the loss of a batch."""


class _LossesContainerWithoutMetrics(LossesContainer):
    """A LossesContainer without the metrics that report the loss of each output."""

    def _create_metrics(self) -> None:
        """Store None in place of the metrics of each output; LossesContainer calls this method."""
        self._per_output_metrics = [None] * len(self._losses)


def without_loss_metrics(compiled: Any, output_names: Any, replicas: int) -> Any:
    """Return a copy of compiled losses that updates no metrics, for use in an estimator's step.

    Args:
      replicas: the number of replicas. A loss that is a sum over examples is multiplied by this
        number; see `make_sum_scaler`.
    """
    scale_sum = make_sum_scaler(tf_keras.losses.Loss, replicas)
    return _LossesContainerWithoutMetrics(
        tf.nest.map_structure(scale_sum, get_private_attribute(compiled, "_user_losses")),
        get_private_attribute(compiled, "_user_loss_weights"),
        output_names=output_names,
        total_loss_mean=_UnusedMetric(),
    )
