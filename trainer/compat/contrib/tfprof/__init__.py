"""tf.contrib.tfprof: TensorFlow's graph profiler."""

from tensorflow.python.profiler import tfprof_logger

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.tfprof import model_analyzer

__all__ = ["model_analyzer", "tfprof_logger"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tfprof", __all__)
