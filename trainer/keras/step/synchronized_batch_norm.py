"""Batch normalization that its layer wants synchronized, on the replicas of a TPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from trainer.distribution.cross_shard import cross_replica_sum
from trainer.model import patching


@contextmanager
def synchronize_moments(replicas: int) -> Iterator[None]:
    """Within it layers of synchronized=True normalize by the rows of all replicas.

    They ask the replica context of tf.distribute for sums over replicas; without a strategy there
    is one for the whole process, which knows of one replica.
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
