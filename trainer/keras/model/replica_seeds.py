"""Seeds that differ between replicas."""

from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import gen_xla_ops, tpu_function

# Far from what counting up by one reaches.
_DISTANCE = 0x9E3779B1


def offset_by_replica(seed: Any) -> Any:
    """A seed [2] as it is on the first replica, and another one on each other.

    Replicas have the same variables, a generator's state among them: they would all drop the same
    units.
    """
    if (tpu_function.get_tpu_context().number_of_shards or 1) == 1:
        return seed
    replica = tf.cast(gen_xla_ops.xla_replica_id(), seed.dtype)
    return seed + tf.stack([replica * tf.constant(_DISTANCE, seed.dtype), tf.zeros_like(replica)])
