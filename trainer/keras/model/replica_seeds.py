"""Makes the random seeds of Keras layers differ between the replicas of a TPU."""

from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import gen_xla_ops, tpu_function

# The difference between the seeds of replica i and replica i + 1: 2**32 divided by the golden
# ratio.
_SEED_STRIDE = 0x9E3779B1


def offset_by_replica(seed: Any) -> Any:
    """Add an offset to a seed. The offset is different on each replica.

    All replicas have the same variables, which include the state of Keras's seed generators.

    Args:
      seed: a tensor [2] of integers, the seed of a stateless random op.
    """
    if (tpu_function.get_tpu_context().number_of_shards or 1) == 1:
        return seed
    replica = tf.cast(gen_xla_ops.xla_replica_id(), seed.dtype)
    offset = replica * tf.constant(_SEED_STRIDE, seed.dtype)
    return seed + tf.stack([offset, tf.zeros_like(replica)])
