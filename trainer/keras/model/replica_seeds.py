"""Random seeds that differ between the replicas of a TPU."""

from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import gen_xla_ops, tpu_function

# The difference between the seeds of two neighbouring replicas: 2**32 divided by the golden ratio.
# Generators count their seeds up by one, so with a small difference one replica would soon reach
# the seeds of another.
_SEED_STRIDE = 0x9E3779B1


def offset_by_replica(seed: Any) -> Any:
    """Add an offset to a seed that is zero on the first replica and differs on the others.

    All replicas have the same variables, and so the same generator state: without the offset, a
    dropout layer would drop the same units on each replica.

    Args:
      seed: a tensor [2] of integers.

    Returns:
      A tensor of the same shape and dtype.
    """
    if (tpu_function.get_tpu_context().number_of_shards or 1) == 1:
        return seed
    replica = tf.cast(gen_xla_ops.xla_replica_id(), seed.dtype)
    offset = replica * tf.constant(_SEED_STRIDE, seed.dtype)
    return seed + tf.stack([offset, tf.zeros_like(replica)])
