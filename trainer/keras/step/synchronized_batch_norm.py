"""Batch normalization with synchronized=True, on the replicas of a TPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from trainer.distribution.cross_shard import cross_replica_sum
from trainer.model import patching


@contextmanager
def synchronize_moments(replicas: int) -> Iterator[None]:
    """Let layers with synchronized=True normalize by the rows of all replicas inside a context.

    Such a layer calls all_reduce of tf.distribute's replica context. Without a tf.distribute
    strategy, the replica context is a default one for a single replica. This function replaces that
    context's all_reduce by a sum over the replicas of the TPU.

    Args:
      replicas: the number of replicas.
    """
    if replicas == 1:
        yield
        return

    def all_reduce(reduce_op: Any, value: Any, options: Any = None) -> Any:
        return tf.nest.map_structure(cross_replica_sum, value)

    with patching.patched_attributes(
        tf.distribute.get_replica_context(), {"all_reduce": all_reduce}
    ):
        yield
