"""tf.contrib.tpu.python.tpu.tpu_config: RunConfig and TPUConfig.

The same module was also part of tensorflow_estimator.
"""

from trainer.compat.contrib_names import missing_names
from trainer.config.run_config import InputPipelineConfig, RunConfig, TPUConfig

__all__ = ["InputPipelineConfig", "RunConfig", "TPUConfig"]

__getattr__ = missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_config", __all__)
