"""Exchanges tensors between the replicas that run a training step together."""

from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import gen_xla_ops


class Replicas:
    """Collective operations between the replicas that run a step together.

    Attributes:
      index: number of the replica that runs the op, int32 []; 0 with one replica.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.index: Any = gen_xla_ops.xla_replica_id() if count > 1 else 0

    def gather(self, tensor: Any) -> Any:
        """Return the tensors of all replicas, concatenated along the first dimension.

        All replicas get the same result.

        Args:
          tensor: a tensor of rank 1 or more, of the same shape on all replicas.
        """
        if self.count == 1:
            return tensor
        is_own = tf.reshape(
            tf.equal(tf.range(self.count), self.index), [self.count] + [1] * tensor.shape.rank
        )
        own = tf.where(is_own, tensor[tf.newaxis], tf.zeros([], tensor.dtype))
        return _merge_first_dimensions(tf.compat.v1.tpu.cross_replica_sum(own), tensor)

    def scatter_sums(self, tensor: Any) -> Any:
        """Add the tensors of all replicas; return this replica's part of the sum (reduce-scatter).

        Args:
          tensor: a tensor that consists of one part for each replica, concatenated along the first
            dimension as by `gather`. All dimensions except the first are static.
        """
        if self.count == 1:
            return tensor
        # Without TensorFlow 2 behaviour, tensor.shape[0] is a Dimension, which is never None.
        rows, *sizes = tensor.shape.as_list()
        rows = -1 if rows is None else rows // self.count
        parts = tf.reshape(tensor, [self.count, rows, *sizes])
        received = tf.raw_ops.AllToAll(
            input=parts,
            group_assignment=tf.constant([list(range(self.count))]),
            concat_dimension=0,
            split_dimension=0,
            split_count=self.count,
        )
        return tf.reduce_sum(tf.ensure_shape(received, parts.shape), 0)


def _merge_first_dimensions(stacked: Any, tensor: Any) -> Any:
    shape = tf.concat([[-1], tf.shape(tensor)[1:]], 0)
    merged = tf.reshape(stacked, shape)
    rows, *sizes = tensor.shape.as_list()
    merged.set_shape([None if rows is None else stacked.shape.as_list()[0] * rows, *sizes])
    return merged
