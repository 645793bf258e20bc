"""Who gets which part of a batch: one rule for each input mode."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig
from trainer.infeed.tensor_nest import TensorNest

logger = logging.getLogger("tensorflow.trainer")

_WHOLE = (InputPipelineConfig.PER_HOST_V2, InputPipelineConfig.BROADCAST)


def num_shards(mode: Any, replicas: int) -> int:
    """In how many parts a batch is split for so many replicas that one pipeline feeds."""
    return 1 if mode in _WHOLE else replicas


def effective_batch_axis(mode: Any, batch_axis: Any) -> Any:
    """The batch_axis that a mode goes by, with a log line where it goes by none."""
    if batch_axis is not None and mode != InputPipelineConfig.PER_HOST_V1:
        logger.warning("batch_axis=%r is not looked at: only PER_HOST_V1 splits by it", batch_axis)
        return None
    return batch_axis


def resolve_batch_axes(structure: TensorNest, batch_axis: Any) -> tuple[int | None, ...]:
    """Per tensor the axis that the rows are on; None for a scalar.

    Args:
      structure: of the input.
      batch_axis: an axis per tensor, nested or in a row; None for the first of all.

    Raises:
      InvalidSetting: batch_axis does not fit the input.
    """
    leaves = structure.leaves
    if batch_axis is None:
        return tuple(None if leaf.spec.shape.rank == 0 else 0 for leaf in leaves)
    given = tf.nest.flatten(batch_axis)
    if len(given) != len(leaves):
        raise InvalidSetting(
            f"batch_axis is {batch_axis!r}, of {len(given)} axes, where the input has "
            f"{len(leaves)} tensors: {', '.join(map(str, leaves))}. Give one axis for each, in "
            f"this order."
        )
    for axis, leaf in zip(given, leaves, strict=True):
        rank = leaf.spec.shape.rank
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise InvalidSetting(
                f"batch_axis is {axis!r} for {leaf}. Give the whole number of a dimension."
            )
        if not 0 <= axis < (rank or 0):
            raise InvalidSetting(
                f"batch_axis is {axis} for {leaf}, which has {rank} dimensions. Count them from 0."
            )
    return tuple(given)


def split_into_shards(
    tensors: Sequence[Any], axes: Sequence[int | None], shards: int
) -> list[list[Any]]:
    """Equal parts of each tensor: for each shard its tensors."""
    if shards == 1:
        return [list(tensors)]
    parts = [tf.split(each, shards, axis) for each, axis in zip(tensors, axes, strict=True)]
    return [list(each) for each in zip(*parts, strict=True)]


def per_replica_batches(
    following: Callable[[], list[Any]], replicas: int, in_order: bool
) -> list[list[Any]]:
    """A batch of its own for each replica.

    Args:
      following: builds the ops that take the next batch.
      replicas: how many.
      in_order: whether the first replica gets the first batch, and so on; else they are taken
        at the same time.
    """
    taken: list[list[Any]] = []
    for _ in range(replicas):
        before = [each.op for each in taken[-1]] if in_order and taken else []
        with tf.control_dependencies(before):
            taken.append(following())
    return taken
