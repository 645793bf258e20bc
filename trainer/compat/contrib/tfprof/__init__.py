"""tf.contrib.tfprof: TensorFlow's profiler of graphs."""

from tensorflow.python.profiler import tfprof_logger

from trainer.compat.contrib import absence
from trainer.compat.contrib.tfprof import model_analyzer

__all__ = ["model_analyzer", "tfprof_logger"]

__getattr__ = absence.of("tf.contrib.tfprof", __all__)
