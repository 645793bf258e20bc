"""Policies for the final batch of an input, which may have fewer examples than the other batches.

A TPU program has static shapes, so a smaller final batch cannot be fed unchanged. If the batch were
dropped, metrics and predictions would lack its examples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.infeed.tensor_nest import TensorLeaf

CONTINUED = 2


@dataclass(frozen=True)
class BatchSpec:
    """Describes the tensors of a batch of input_fn, and the number of examples in a full batch.

    Attributes:
      axes: for each tensor the axis that counts the examples; None for a scalar, which belongs to
        all examples.
    """

    leaves: tuple[TensorLeaf, ...]
    axes: tuple[int | None, ...]
    rows: int
    shards: int = 1

    def full_leaves(self) -> tuple[TensorLeaf, ...]:
        """Return `leaves`; replace unknown numbers of examples by the number of a full batch."""
        return tuple(
            leaf
            if axis is None or leaf.size(axis) is not None
            else leaf.with_dimension(axis, self.rows)
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        )

    def may_be_partial(self) -> bool:
        """Return whether a shape leaves the number of examples open, so a batch may be partial."""
        return any(
            axis is not None and leaf.size(axis) is None
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        )


class FinalBatchPadding(ABC):
    """The policy for partial batches, which have fewer examples than params['batch_size'].

    Attributes:
      keeps_row_order: whether the examples must be processed in the order of the input.
      adds_padding_feature: whether to add features['is_padding'] to the features of model_fn, if
        they are a dict without that key: int32 [batch], 1 for padding, 0 for a real example.
      needs_end_of_input: whether the input must be a Dataset, which has an end, and not tensors.
    """

    allows_partial_batches: bool = True
    keeps_row_order: bool = False
    adds_padding_feature: bool = False
    needs_end_of_input: bool = False

    def pad(self, dataset: Any, spec: BatchSpec) -> Any:
        """Return an endless Dataset of full batches, each with a mask.

        Raises:
          tf.errors.InvalidArgumentError: raised when the Dataset is read: the tensors of a batch
            have different numbers of examples, or more examples than `spec.rows`.
        """
        if not spec.may_be_partial():
            return _repeat_padding_forever(dataset.map(_add_full_mask(spec)), spec)
        return _repeat_padding_forever(self._pad_partial_batches(dataset, spec), spec)

    @abstractmethod
    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        """Return a Dataset in which every batch is full and has a mask.

        Args:
          dataset: its elements are batches, as flat tuples of tensors; some may be partial.
          spec: the tensors of a full batch.
        """


class RefusePartialBatches(FinalBatchPadding):
    """Accept only batches of static shape, so that no batch needs padding or a mask."""

    allows_partial_batches = False

    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        raise AssertionError("The shapes were checked: no batch can be smaller than the others.")


class PadFinalBatch(FinalBatchPadding):
    """Fill a partial batch with copies of its first example.

    The first example is valid input for the model; an example of zeros may not be. Empty batches
    are dropped.
    """

    keeps_row_order = True
    adds_padding_feature = True
    needs_end_of_input = True

    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        def pad_batch(*tensors: Any) -> Any:
            num_rows = _count_rows(tensors, spec)
            rows = tf.range(spec.rows)
            indices = tf.where(rows < num_rows, rows, tf.zeros_like(rows))
            mask = tf.cast(rows < num_rows, tf.int32)
            return _gather_rows(tensors, indices, mask, num_rows, spec)

        def has_rows(*tensors: Any) -> Any:
            return _count_rows(tensors, spec) > 0

        return dataset.filter(_without_autograph(has_rows)).map(_without_autograph(pad_batch))


class SpreadFinalBatch(FinalBatchPadding):
    """Spread a partial batch over several full batches, one example for each shard of a batch.

    A shard is the part of a batch that one replica receives. The replica computes one loss, the
    mean over the examples of its shard, and padding would change that mean.
    """

    keeps_row_order = True

    def _pad_partial_batches(self, dataset: Any, spec: BatchSpec) -> Any:
        rows_per_shard = spec.rows // spec.shards

        def spread_batch(*tensors: Any) -> Any:
            num_rows = _count_rows(tensors, spec)
            # Round the number of batches up. A batch without examples becomes 0 batches.
            num_partial = (num_rows + spec.shards - 1) // spec.shards
            num_batches = tf.where(tf.equal(num_rows, spec.rows), 1, num_partial)

            def build_batch(number: Any) -> Any:
                row_of_shard = tf.cast(number, tf.int32) * spec.shards + tf.range(spec.shards)
                indices = tf.repeat(tf.minimum(row_of_shard, num_rows - 1), rows_per_shard)
                is_first = tf.equal(tf.range(spec.rows) % rows_per_shard, 0)
                is_real = is_first & (tf.repeat(row_of_shard, rows_per_shard) < num_rows)
                value = tf.where(tf.equal(number + 1, count), 1, CONTINUED)
                mask = tf.cast(is_real, tf.int32) * value
                return _gather_rows(tensors, indices, mask, num_rows, spec)

            count = tf.cast(num_batches, tf.int64)
            numbers = tf.data.Dataset.range(count)
            return numbers.map(_without_autograph(build_batch))

        return dataset.flat_map(_without_autograph(spread_batch))


def _add_full_mask(spec: BatchSpec) -> Callable[..., Any]:
    return _without_autograph(lambda *tensors: (*tensors, tf.ones([spec.rows], tf.int32)))


def _count_rows(tensors: tuple[Any, ...], spec: BatchSpec) -> Any:
    """Return the number of examples in a batch, int32 []; check that all tensors agree on it."""
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
    tensors: tuple[Any, ...], indices: Any, mask: Any, num_rows: Any, spec: BatchSpec
) -> tuple[Any, ...]:
    """Build a full batch with a mask from examples of a partial batch."""

    def gather() -> list[Any]:
        gathered = [
            tensor if axis is None else tf.gather(tensor, indices, axis=axis)
            for tensor, axis in zip(tensors, spec.axes, strict=True)
        ]
        return [*gathered, mask]

    def keep() -> list[Any]:
        return [*(tf.identity(tensor) for tensor in tensors), tf.ones([spec.rows], tf.int32)]

    *batch, result_mask = tf.cond(tf.equal(num_rows, spec.rows), keep, gather)
    for tensor, leaf in zip(batch, spec.full_leaves(), strict=True):
        tensor.set_shape(leaf.spec.shape)
    result_mask.set_shape([spec.rows])
    return (*batch, result_mask)


def _repeat_padding_forever(dataset: Any, spec: BatchSpec) -> Any:
    """Append endless copies of the Dataset's last real batch, with masks that mark padding."""
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
    # Switch AutoGraph off for a function of this module: the functions use no Python control flow
    # on tensors, so AutoGraph would have nothing to convert.
    return tf.autograph.experimental.do_not_convert(function)
