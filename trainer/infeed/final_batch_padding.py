"""Batches of fewer rows than the others: made whole, with a mask that tells the real rows.

A TPU program has static shapes, so that a smaller last batch cannot go in as it is; dropping it
would leave rows out of metrics and predictions. All functions take and give Datasets of flat
tuples of tensors; what they give has a further tensor at the end, the mask: int32 [rows], 1 for
a real row and 0 for filler. After the last real row come elements of filler only, without end,
so that a device that looks for the end a loop later never waits for input.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.infeed.tensor_nest import TensorLeaf


@dataclass(frozen=True)
class BatchSpec:
    """What a whole batch is.

    Attributes:
      leaves: its tensors; the number of rows may be unknown.
      axes: per tensor the axis of its rows; None for a scalar, which is the same for all rows.
      rows: in a whole batch.
      shards: in how many equal parts a batch is split for the replicas.
    """

    leaves: tuple[TensorLeaf, ...]
    axes: tuple[int | None, ...]
    rows: int
    shards: int = 1

    def filled(self) -> tuple[TensorLeaf, ...]:
        """The tensors with their number of rows."""
        return tuple(
            leaf if axis is None else leaf.with_dimension(axis, self.rows)
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        )


def pad_final_batch(dataset: Any, whole: BatchSpec) -> Any:
    """Fills a smaller batch up with its own first row.

    That row is known to be valid input, zeros may not be.

    Raises (as the Dataset is read):
      tf.errors.InvalidArgumentError: tensors of a batch differ in rows, or there are too many.
    """

    def padded(*tensors: Any) -> Any:
        found = _rows(tensors, whole)
        rows = tf.range(whole.rows)
        indices = tf.where(rows < found, rows, tf.zeros_like(rows))
        return _picked(tensors, indices, rows < found, found, whole)

    if not _may_be_smaller(whole):
        return _endless(dataset.map(_all_real(whole)), whole)
    return _endless(dataset.filter(_has_rows(whole)).map(_as_it_is(padded)), whole)


def spread_final_batch(dataset: Any, whole: BatchSpec) -> Any:
    """Makes several batches of a smaller one, with one real row, or none, in each shard.

    A shard computes one loss, the mean over its rows, which rows of filler would spoil. So a
    smaller batch of b rows becomes ceil(b / shards) batches: each shard repeats one real row all
    over and the mask has it once, so that the mean is that row's loss. Shards left over at the
    end repeat the last row with a mask of zeros.

    Raises (as the Dataset is read):
      tf.errors.InvalidArgumentError: tensors of a batch differ in rows, or there are too many.
    """
    rows_per_shard = whole.rows // whole.shards

    def tiled(*tensors: Any) -> Any:
        found = _rows(tensors, whole)
        # None of a batch without rows.
        pieces_of_smaller = (found + whole.shards - 1) // whole.shards
        pieces = tf.where(tf.equal(found, whole.rows), 1, pieces_of_smaller)

        def piece(number: Any) -> Any:
            row_of_shard = tf.cast(number, tf.int32) * whole.shards + tf.range(whole.shards)
            indices = tf.repeat(tf.minimum(row_of_shard, found - 1), rows_per_shard)
            is_first = tf.equal(tf.range(whole.rows) % rows_per_shard, 0)
            is_real = is_first & (tf.repeat(row_of_shard, rows_per_shard) < found)
            return _picked(tensors, indices, is_real, found, whole)

        return tf.data.Dataset.range(tf.cast(pieces, tf.int64)).map(_as_it_is(piece))

    if not _may_be_smaller(whole):
        return _endless(dataset.map(_all_real(whole)), whole)
    return _endless(dataset.flat_map(_as_it_is(tiled)), whole)


def _may_be_smaller(whole: BatchSpec) -> bool:
    return any(
        axis is not None and leaf.size(axis) is None
        for leaf, axis in zip(whole.leaves, whole.axes, strict=True)
    )


def _all_real(whole: BatchSpec) -> Callable[..., Any]:
    return _as_it_is(lambda *tensors: (*tensors, tf.ones([whole.rows], tf.int32)))


def _has_rows(whole: BatchSpec) -> Callable[..., Any]:
    return _as_it_is(lambda *tensors: _rows(tensors, whole) > 0)


def _rows(tensors: tuple[Any, ...], whole: BatchSpec) -> Any:
    """How many rows a batch has, int32, once it is known that all its tensors agree."""
    found = [
        (leaf.path, tf.shape(tensor)[axis])
        for tensor, leaf, axis in zip(tensors, whole.leaves, whole.axes, strict=True)
        if axis is not None
    ]
    (first, rows), *others = found
    checks = [
        tf.debugging.assert_equal(
            other, rows, f"{path} and {first} from input_fn have different numbers of rows"
        )
        for path, other in others
    ]
    checks.append(
        tf.debugging.assert_less_equal(
            rows,
            whole.rows,
            f"{first} from input_fn has more rows than params['batch_size'] = {whole.rows}",
        )
    )
    with tf.control_dependencies(checks):
        return tf.identity(rows)


def _picked(
    tensors: tuple[Any, ...], indices: Any, is_real: Any, found: Any, whole: BatchSpec
) -> tuple[Any, ...]:
    """The rows at these indices, and their mask; a whole batch is taken as it is."""

    def pick() -> list[Any]:
        picked = [
            tensor if axis is None else tf.gather(tensor, indices, axis=axis)
            for tensor, axis in zip(tensors, whole.axes, strict=True)
        ]
        return [*picked, tf.cast(is_real, tf.int32)]

    def keep() -> list[Any]:
        return [*(tf.identity(each) for each in tensors), tf.ones([whole.rows], tf.int32)]

    *batch, mask = tf.cond(tf.equal(found, whole.rows), keep, pick)
    for tensor, leaf in zip(batch, whole.filled(), strict=True):
        tensor.set_shape(leaf.spec.shape)
    mask.set_shape([whole.rows])
    return (*batch, mask)


def _endless(dataset: Any, whole: BatchSpec) -> Any:
    """The batches, then the last of them again and again with a mask of zeros."""
    nothing = tuple(tf.zeros(each.spec.shape, each.spec.dtype) for each in whole.filled())
    no_row = tf.zeros([whole.rows], tf.int32)
    filler = tf.data.Dataset.from_tensors((*nothing, no_row)).repeat()

    def repeat_last(last: Any, element: Any) -> Any:
        *batch, mask = element
        batch = tf.cond(
            tf.reduce_any(mask > 0),
            lambda: [tf.identity(each) for each in batch],
            lambda: [tf.identity(each) for each in last],
        )
        return tuple(batch), (*batch, mask)

    return dataset.concatenate(filler).scan(nothing, _as_it_is(repeat_last))


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    # There is no Python control flow over tensors here for autograph to look for, line by line.
    return tf.autograph.experimental.do_not_convert(function)
