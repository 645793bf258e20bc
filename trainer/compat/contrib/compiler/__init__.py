"""tf.contrib.compiler: modules with functions that compile computations by XLA."""

from trainer.compat.contrib.compiler import jit, xla
from trainer.compat.contrib_names import missing_names

__all__ = ["jit", "xla"]

__getattr__ = missing_names.getattr_for("tf.contrib.compiler", __all__)
