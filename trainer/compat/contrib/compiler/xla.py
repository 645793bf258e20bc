"""tf.contrib.compiler.xla: the function `compile`, which compiles a computation by XLA."""

from tensorflow.xla.experimental import compile

from trainer.compat import contrib_missing_names

__all__ = ["compile"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.compiler.xla", __all__)
