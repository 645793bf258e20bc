"""tf.contrib.compiler.xla: the function `compile`, which compiles a computation by XLA."""

from tensorflow.xla.experimental import compile

from trainer.compat.contrib_names import missing_names

__all__ = ["compile"]

__getattr__ = missing_names.getattr_for("tf.contrib.compiler.xla", __all__)
