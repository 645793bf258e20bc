"""tf.contrib.slim.nets: the one that programs for TPUs took from there."""

from trainer.compat.contrib import absence
from trainer.compat.contrib.slim.nets import inception

__all__ = ["inception"]

__getattr__ = absence.of("tf.contrib.slim.nets", __all__)
