"""tf.contrib.tpu.python.tpu.tpu_optimizer: CrossShardOptimizer of the package `trainer`."""

from trainer.compat.contrib_names import missing_names
from trainer.distribution.cross_shard import CrossShardOptimizer

__all__ = ["CrossShardOptimizer"]

__getattr__ = missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_optimizer", __all__)
