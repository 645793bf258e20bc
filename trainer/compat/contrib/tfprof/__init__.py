"""tf.contrib.tfprof: TensorFlow's graph profiler."""

from tensorflow.python.profiler import tfprof_logger

from trainer.compat.contrib.tfprof import model_analyzer
from trainer.compat.contrib_names import missing_names

__all__ = ["model_analyzer", "tfprof_logger"]

__getattr__ = missing_names.getattr_for("tf.contrib.tfprof", __all__)
