"""tf.contrib.tpu.python.tpu.tpu_optimizer: CrossShardOptimizer of the package `trainer`."""

from trainer.compat import contrib_missing_names
from trainer.distribution.cross_shard import CrossShardOptimizer

__all__ = ["CrossShardOptimizer"]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tpu.python.tpu.tpu_optimizer", __all__)
