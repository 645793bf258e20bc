"""tf.contrib.slim.nets: networks for images, of which tpuserve supplies Inception v3 only."""

from trainer.compat.contrib.slim.nets import inception
from trainer.compat.contrib_names import missing_names

__all__ = ["inception"]

__getattr__ = missing_names.getattr_for("tf.contrib.slim.nets", __all__)
