"""Policies for final batches, which have fewer rows than the other batches.

A TPU program has static shapes, so a smaller final batch cannot be fed unchanged, and without the
batch, metrics and predictions would lack rows. `RefusePartialBatches` demands that every batch has
all rows (training), `PadFinalBatch` repeats a row (prediction), and `SpreadFinalBatch` spreads the
rows over several batches (evaluation).

The elements of the Datasets in this module are flat tuples of tensors. A padded Dataset has one
more tensor at the end, the mask: int32 [rows], 1 for a real row and 0 for padding. After the last
real row, a padded Dataset continues with an endless sequence of batches of padding. So a core never
waits for input, even if the host detects the end of the input one loop too late.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.infeed.tensor_nest import TensorLeaf


@dataclass(frozen=True)
class BatchSpec:
    """Describes the tensors of a batch of input_fn, and the number of rows of a full batch.

    Attributes:
      leaves: the paths and specs of the tensors; the number of rows may be unknown.
      axes: for each tensor the axis of its rows; None for a scalar, which all rows share.
      rows: number of rows in a full batch.
      shards: number of equal parts that a batch is split into for the replicas.
    """

    leaves: tuple[TensorLeaf, ...]
    axes: tuple[int | None, ...]
    rows: int
    shards: int = 1

    def full_leaves(self) -> tuple[TensorLeaf, ...]:
        """Return `leaves`; an unknown number of rows is replaced by that of a full batch."""
        return tuple(
            leaf
            if axis is None or leaf.size(axis) is not None
            else leaf.with_dimension(axis, self.rows)
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        )

    def may_be_partial(self) -> bool:
        """Return whether a batch may have too few rows, because a shape does not fix the number."""
        return any(
            axis is not None and leaf.size(axis) is None
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        )


class FinalBatchPadding(ABC):
    """The policy for batches with fewer rows than params['batch_size'].

    Attributes:
      allows_partial_batches: whether a batch may have fewer rows. If so, each batch has a mask.
      keeps_row_order: whether the rows must be processed in the order of the input.
      adds_padding_feature: whether to add features['is_padding'] to the features of model_fn, if
        they are a dict without that key: int32 [rows], 1 for a row of padding.
      needs_end_of_input: whether the input must be a Dataset, which has an end, and not tensors.
    """

    allows_partial_batches: bool = True
    keeps_row_order: bool = False
    adds_padding_feature: bool = False
    needs_end_of_input: bool = False

    def pad(self, dataset: Any, spec: BatchSpec) -> Any:
        """Return a Dataset of full batches with a mask, which never ends.

        Args:
          dataset: its elements are flat tuples of tensors, which `spec.leaves` describes.
          spec: the tensors of a full batch.

        Raises:
          tf.errors.InvalidArgumentError: while the Dataset is read: the tensors of a batch
            disagree about the number of rows, or the batch has more rows than `spec.rows`.
        """
        if not spec.may_be_partial():
            return _repeat_padding_forever(dataset.map(_add_full_mask(spec)), spec)
        return _repeat_padding_forever(self._pad_partial_batches(dataset, spec), spec)

    @abstractmethod
    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        """Return a Dataset in which every batch is full and has a mask."""


class RefusePartialBatches(FinalBatchPadding):
    """Accept only batches of static shape, so that no batch needs padding or a mask."""

    allows_partial_batches = False

    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        raise AssertionError("The shapes were checked: no batch can be smaller than the others.")


class PadFinalBatch(FinalBatchPadding):
    """Fill a partial batch by repeating its first row.

    The first row is known to be valid input; a row of zeros may not be. Empty batches are dropped.
    """

    keeps_row_order = True
    adds_padding_feature = True
    needs_end_of_input = True

    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        def pad_batch(*tensors: Any) -> Any:
            num_rows = _count_rows(tensors, spec)
            rows = tf.range(spec.rows)
            indices = tf.where(rows < num_rows, rows, tf.zeros_like(rows))
            return _gather_rows(tensors, indices, rows < num_rows, num_rows, spec)

        def has_rows(*tensors: Any) -> Any:
            return _count_rows(tensors, spec) > 0

        return dataset.filter(_without_autograph(has_rows)).map(_without_autograph(pad_batch))


class SpreadFinalBatch(FinalBatchPadding):
    """Spread a partial batch over several batches, with at most one of its rows in each shard.

    A replica computes one loss, the mean over the rows of its shard, and rows of padding would
    change that mean. So a partial batch of b rows becomes ceil(b / shards) batches: each shard
    repeats one row of the partial batch in all its rows, and the mask counts the row once. The mean
    is then the loss of that row. The surplus shards of the last batch repeat the last row, with a
    mask of zeros.
    """

    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        rows_per_shard = spec.rows // spec.shards

        def spread_batch(*tensors: Any) -> Any:
            num_rows = _count_rows(tensors, spec)
            # Round the number of batches up. A batch without rows becomes 0 batches.
            num_partial = (num_rows + spec.shards - 1) // spec.shards
            num_batches = tf.where(tf.equal(num_rows, spec.rows), 1, num_partial)

            def build_batch(number: Any) -> Any:
                row_of_shard = tf.cast(number, tf.int32) * spec.shards + tf.range(spec.shards)
                indices = tf.repeat(tf.minimum(row_of_shard, num_rows - 1), rows_per_shard)
                is_first = tf.equal(tf.range(spec.rows) % rows_per_shard, 0)
                is_real = is_first & (tf.repeat(row_of_shard, rows_per_shard) < num_rows)
                return _gather_rows(tensors, indices, is_real, num_rows, spec)

            numbers = tf.data.Dataset.range(tf.cast(num_batches, tf.int64))
            return numbers.map(_without_autograph(build_batch))

        return dataset.flat_map(_without_autograph(spread_batch))


def _add_full_mask(spec: BatchSpec) -> Callable[..., Any]:
    return _without_autograph(lambda *tensors: (*tensors, tf.ones([spec.rows], tf.int32)))


def _count_rows(tensors: tuple[Any, ...], spec: BatchSpec) -> Any:
    """Check that all tensors of a batch have equally many rows; return the number, int32 []."""
    rows_by_path = [
        (leaf.path, tf.shape(tensor)[axis])
        for tensor, leaf, axis in zip(tensors, spec.leaves, spec.axes, strict=True)
        if axis is not None
    ]
    (first, rows), *others = rows_by_path
    checks = [
        tf.debugging.assert_equal(
            other, rows, f"{path} and {first} from input_fn have different numbers of rows"
        )
        for path, other in others
    ]
    checks.append(
        tf.debugging.assert_less_equal(
            rows,
            spec.rows,
            f"{first} from input_fn has more rows than params['batch_size'] = {spec.rows}",
        )
    )
    with tf.control_dependencies(checks):
        return tf.identity(rows)


def _gather_rows(
    tensors: tuple[Any, ...], indices: Any, is_real: Any, num_rows: Any, spec: BatchSpec
) -> tuple[Any, ...]:
    """Return the rows at `indices` and their mask; a full batch is returned unchanged.

    Args:
      tensors: one batch, without a mask.
      indices: int32 [spec.rows]: the row of the batch for each row of the result.
      is_real: bool [spec.rows]: False marks padding.
      num_rows: int32 []: the number of rows of the batch.
      spec: the tensors of a full batch.
    """

    def gather() -> list[Any]:
        gathered = [
            tensor if axis is None else tf.gather(tensor, indices, axis=axis)
            for tensor, axis in zip(tensors, spec.axes, strict=True)
        ]
        return [*gathered, tf.cast(is_real, tf.int32)]

    def keep() -> list[Any]:
        return [*(tf.identity(tensor) for tensor in tensors), tf.ones([spec.rows], tf.int32)]

    *batch, mask = tf.cond(tf.equal(num_rows, spec.rows), keep, gather)
    for tensor, leaf in zip(batch, spec.full_leaves(), strict=True):
        tensor.set_shape(leaf.spec.shape)
    mask.set_shape([spec.rows])
    return (*batch, mask)


def _repeat_padding_forever(dataset: Any, spec: BatchSpec) -> Any:
    """Append endless copies of the Dataset's last batch, all of whose rows count as padding."""
    empty = tuple(
        tf.zeros([size or 1 for size in leaf.spec.shape.as_list()], leaf.spec.dtype)
        for leaf in spec.full_leaves()
    )
    zero_mask = tf.zeros([spec.rows], tf.int32)
    endless_padding = tf.data.Dataset.from_tensors((*empty, zero_mask)).repeat()

    def repeat_last(last: Any, element: Any) -> Any:
        *batch, mask = element
        batch = tf.cond(
            tf.reduce_any(mask > 0),
            lambda: [tf.identity(tensor) for tensor in batch],
            lambda: [tf.identity(tensor) for tensor in last],
        )
        return tuple(batch), (*batch, mask)

    return dataset.concatenate(endless_padding).scan(empty, _without_autograph(repeat_last))


def _without_autograph(function: Callable[..., Any]) -> Callable[..., Any]:
    # Switch AutoGraph off. It would have nothing to convert, because the functions of this module
    # use no Python control flow on tensors.
    return tf.autograph.experimental.do_not_convert(function)
