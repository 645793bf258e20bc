"""Makes Keras's batch normalization with synchronized=True work on the replicas of a TPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.distribution.cross_shard import cross_replica_sum
from trainer.model import patching


@contextmanager
def synchronize_moments(replicas: int) -> Iterator[None]:
    """Return a context in which batch normalization can use the batches of all replicas.

    A layer with synchronized=True calls the method all_reduce of tf.distribute's replica context.

    Raises:
      InvalidSetting: in the context, a layer calls all_reduce with a reduce_op other than SUM and
        MEAN.
    """
    if replicas == 1:
        yield
        return

    def all_reduce(reduce_op: Any, value: Any, options: Any = None) -> Any:
        # TensorFlow's method takes a tf.distribute.ReduceOp, or its name in upper or lower case.
        name = str(getattr(reduce_op, "value", reduce_op)).upper()
        if name not in ("SUM", "MEAN"):
            raise InvalidSetting(
                f"all_reduce of a replica context has reduce_op={reduce_op!r}. Give ReduceOp.SUM "
                f"or ReduceOp.MEAN."
            )
        sums = tf.nest.map_structure(cross_replica_sum, value)
        return sums if name == "SUM" else tf.nest.map_structure(lambda x: x / replicas, sums)

    with patching.patched_attributes(
        tf.distribute.get_replica_context(), {"all_reduce": all_reduce}
    ):
        yield
