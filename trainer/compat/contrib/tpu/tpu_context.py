"""tf.contrib.tpu.python.tpu.tpu_context: TPUContext of the package `trainer`.

This module also replaces tensorflow_estimator.python.estimator.tpu.tpu_context.
"""

from trainer.compat import contrib_missing_names
from trainer.distribution.tpu_context import TPUContext

__all__ = ["TPUContext"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_context", __all__)
