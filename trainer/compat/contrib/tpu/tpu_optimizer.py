"""The module tpu_optimizer of tf.contrib.tpu.python.tpu."""

from trainer.compat.contrib import absence
from trainer.cross_shard import CrossShardOptimizer

__all__ = ["CrossShardOptimizer"]

__getattr__ = absence.of("tf.contrib.tpu.python.tpu.tpu_optimizer", __all__)
