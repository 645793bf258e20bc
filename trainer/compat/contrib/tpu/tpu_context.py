"""The module tpu_context of tf.contrib.tpu.python.tpu and of tensorflow_estimator."""

from trainer.compat.contrib import absence
from trainer.tpu_context import TPUContext

__all__ = ["TPUContext"]

__getattr__ = absence.of("tf.contrib.tpu.python.tpu.tpu_context", __all__)
