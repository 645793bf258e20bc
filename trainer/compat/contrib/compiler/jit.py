"""tf.contrib.compiler.jit: experimental_jit_scope, a context whose ops XLA compiles."""

from tensorflow.xla.experimental import jit_scope as experimental_jit_scope

from trainer.compat.contrib_names import missing_names

__all__ = ["experimental_jit_scope"]

__getattr__ = missing_names.getattr_for("tf.contrib.compiler.jit", __all__)
