"""tf.contrib.compiler: modules with functions that compile computations by XLA."""

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.compiler import jit, xla

__all__ = ["jit", "xla"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.compiler", __all__)
