"""tf.contrib.compiler.jit: the ops of a scope, compiled."""

from tensorflow.xla.experimental import jit_scope as experimental_jit_scope

from trainer.compat.contrib import absence

__all__ = ["experimental_jit_scope"]

__getattr__ = absence.of("tf.contrib.compiler.jit", __all__)
