"""Converts an Estimator to a TPUEstimator, without changes to its model_fn and input_fn.

The entry point is `to_tpu_estimator` in the module `estimators`. On a TPU, the module `gradients`
averages gradients over the replicas, and the module `metrics` computes metrics on the host.
`trainer.model.feature_codec` makes batches of a fixed size and of dtypes that a TPU accepts.
"""

from trainer.conversion.estimators import to_tpu_estimator

__all__ = ["to_tpu_estimator"]
