"""tf.contrib.tpu.python.tpu.tpu_config: RunConfig and TPUConfig of the package `trainer`.

This module also replaces tensorflow_estimator.python.estimator.tpu.tpu_config.
"""

from trainer.compat import contrib_missing_names
from trainer.config.run_config import InputPipelineConfig, RunConfig, TPUConfig

__all__ = ["InputPipelineConfig", "RunConfig", "TPUConfig"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_config", __all__)
