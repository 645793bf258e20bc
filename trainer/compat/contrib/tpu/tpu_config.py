"""The module tpu_config of tf.contrib.tpu.python.tpu and of tensorflow_estimator."""

from trainer.compat.contrib import absence
from trainer.config import InputPipelineConfig, RunConfig, TPUConfig

__all__ = ["InputPipelineConfig", "RunConfig", "TPUConfig"]

__getattr__ = absence.of("tf.contrib.tpu.python.tpu.tpu_config", __all__)
