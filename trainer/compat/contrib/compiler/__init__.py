"""tf.contrib.compiler: XLA."""

from trainer.compat.contrib import absence
from trainer.compat.contrib.compiler import jit, xla

__all__ = ["jit", "xla"]

__getattr__ = absence.of("tf.contrib.compiler", __all__)
