"""tf.contrib.slim.nets: networks for images, of which tpuserve supplies Inception v3 only."""

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.slim.nets import inception

__all__ = ["inception"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.nets", __all__)
