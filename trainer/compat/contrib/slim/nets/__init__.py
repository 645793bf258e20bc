"""tf.contrib.slim.nets: Inception v3, the only network of slim.nets that is supplied."""

from trainer.compat.contrib.slim.nets import inception
from trainer.compat.contrib_names import missing_names

__all__ = ["inception"]

__getattr__ = missing_names.getattr_for("tf.contrib.slim.nets", __all__)
