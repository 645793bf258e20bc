"""From a plain Estimator to a TPUEstimator, with its model_fn and its input_fn as they are.

The door is `estimators`. What differs on a TPU has a file each: gradients are averaged over the
replicas (`gradients`), metrics are made on the host (`metrics`), batches have one size and types
that a TPU takes (`inputs`).
"""

from trainer.conversion.estimators import to_tpu_estimator

__all__ = ["to_tpu_estimator"]
