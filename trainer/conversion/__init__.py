"""Conversion of an Estimator to a TPUEstimator, without changes to its model_fn and input_fn.

The entry point is `to_tpu_estimator`. On a TPU, gradients are averaged over the replicas
(`gradients`), and metrics are computed on the host (`metrics`). `trainer.model.feature_codec` makes
batches of a fixed size and of dtypes that a TPU accepts.
"""

from trainer.conversion.estimators import to_tpu_estimator

__all__ = ["to_tpu_estimator"]
