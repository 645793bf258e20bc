"""tf.contrib.compiler.xla: a function of tensors, compiled."""

from tensorflow.xla.experimental import compile

from trainer.compat.contrib import absence

__all__ = ["compile"]

__getattr__ = absence.of("tf.contrib.compiler.xla", __all__)
