"""tf.contrib.compiler.jit: experimental_jit_scope, a context whose ops XLA compiles."""

from tensorflow.xla.experimental import jit_scope as experimental_jit_scope

from trainer.compat import contrib_missing_names

__all__ = ["experimental_jit_scope"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.compiler.jit", __all__)
