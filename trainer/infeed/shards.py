"""Divides a batch among replicas, as the InputPipelineConfig of the input requires."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig
from trainer.infeed.tensor_nest import TensorLeaf, TensorNest

logger = logging.getLogger("tensorflow.trainer")

_UNSPLIT_MODES = (InputPipelineConfig.PER_HOST_V2, InputPipelineConfig.BROADCAST)


def num_shards(mode: Any, replicas: int) -> int:
    """Return the number of parts that a batch of one pipeline is split into."""
    return 1 if mode in _UNSPLIT_MODES else replicas


def effective_batch_axis(mode: Any, batch_axis: Any) -> Any:
    """Return batch_axis under PER_HOST_V1, the only input mode that uses it; otherwise None."""
    if batch_axis is not None and mode != InputPipelineConfig.PER_HOST_V1:
        logger.warning("batch_axis=%r is ignored: only PER_HOST_V1 splits by it", batch_axis)
        return None
    return batch_axis


def resolve_batch_axes(input_nest: TensorNest, batch_axis: Any) -> tuple[int | None, ...]:
    """Return the axis that counts the examples, for each tensor; None for a scalar.

    Args:
      batch_axis: an axis for each tensor, nested or as a flat list; None for the first axis of
        every tensor.
    """
    leaves = input_nest.leaves
    if batch_axis is None:
        return tuple(None if leaf.spec.shape.rank == 0 else 0 for leaf in leaves)
    axes = tf.nest.flatten(batch_axis)
    if len(axes) != len(leaves):
        raise InvalidSetting(
            f"batch_axis is {batch_axis!r}, of {len(axes)} axes, where the input has "
            f"{len(leaves)} tensors: {', '.join(map(str, leaves))}. Give one axis for each, in "
            f"this order."
        )
    for axis, leaf in zip(axes, leaves, strict=True):
        rank = leaf.spec.shape.rank
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise InvalidSetting(
                f"batch_axis is {axis!r} for {leaf}. Give the whole number of a dimension."
            )
        if not 0 <= axis < (rank or 0):
            raise InvalidSetting(
                f"batch_axis is {axis} for {leaf}, which has {rank} dimensions. Count them from 0."
            )
    return tuple(axes)


def split_into_shards(
    tensors: Sequence[Any], axes: Sequence[int | None], shards: int
) -> list[list[Any]]:
    """Split each tensor of a batch into equal parts along its axis."""
    if shards == 1:
        return [list(tensors)]
    parts = [tf.split(tensor, shards, axis) for tensor, axis in zip(tensors, axes, strict=True)]
    return [list(shard) for shard in zip(*parts, strict=True)]


def per_replica_batches(
    next_batch: Callable[[], list[Any]], replicas: int, in_order: bool
) -> list[list[Any]]:
    """Build the ops that take one batch for each replica; return the tensors of each batch."""
    batches: list[list[Any]] = []
    for _ in range(replicas):
        previous = [tensor.op for tensor in batches[-1]] if in_order and batches else []
        with tf.control_dependencies(previous):
            batches.append(next_batch())
    return batches


def pad_to_common_sizes(
    replica_batches: list[list[Any]], leaves: Sequence[TensorLeaf]
) -> list[list[Any]]:
    """Pad tensors with an unknown number of columns to the same size on all replicas.

    Args:
      leaves: describe the tensors of a batch, in order. Further tensors at the end, such as a mask,
        are not padded.
    """
    if len(replica_batches) == 1:
        return replica_batches
    padded = [list(batch) for batch in replica_batches]
    for index, leaf in enumerate(leaves):
        if leaf.padding is None or leaf.size(1) is not None:
            continue
        columns = [tf.shape(batch[index])[1] for batch in padded]
        most = tf.reduce_max(tf.stack(columns))
        for batch, count in zip(padded, columns, strict=True):
            rows = batch[index].shape[0]
            batch[index] = tf.pad(
                batch[index], [[0, 0], [0, most - count]], constant_values=leaf.padding
            )
            batch[index].set_shape([rows, None])
    return padded
