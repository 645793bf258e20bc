"""tf.contrib.util: functions that convert arrays to TensorProtos and back."""

from tensorflow import get_static_value as constant_value
from tensorflow import make_ndarray, make_tensor_proto

from trainer.compat import contrib_missing_names

__all__ = ["constant_value", "make_ndarray", "make_tensor_proto"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.util", __all__)
