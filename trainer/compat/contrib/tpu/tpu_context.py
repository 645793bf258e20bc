"""The module tpu_context of tf.contrib.tpu.python.tpu and of tensorflow_estimator."""

from trainer.compat.contrib_names import missing_names
from trainer.distribution.tpu_context import TPUContext

__all__ = ["TPUContext"]

__getattr__ = missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_context", __all__)
