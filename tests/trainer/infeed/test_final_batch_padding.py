from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import tensorflow as tf

from trainer.infeed import tensor_nest
from trainer.infeed.final_batch_padding import (
    BatchSpec,
    FinalBatchPadding,
    PadFinalBatch,
    SpreadFinalBatch,
)

v1 = tf.compat.v1

PADDINGS = (PadFinalBatch(), SpreadFinalBatch())


def _batch_spec(dataset: Any, rows: int, shards: int = 1, axes: Sequence[int | None] = (0,)) -> Any:
    leaves = tensor_nest.build_tensor_nest(
        {str(index): spec for index, spec in enumerate(dataset.element_spec)}
    ).leaves
    return BatchSpec(leaves, tuple(axes), rows, shards)


def _first(dataset: Any, count: int) -> list[list[Any]]:
    """Return the first elements of a Dataset, with each tensor as a list."""
    next_element = v1.data.make_one_shot_iterator(dataset).get_next()
    with v1.Session() as session:
        return [[array.tolist() for array in session.run(next_element)] for _ in range(count)]


def _numbers(last: int, batch_size: int) -> Any:
    """Return a Dataset of the rows [1], ..., [last] in batches, as tuples of one tensor."""
    numbers = tf.data.Dataset.range(1, last + 1).map(lambda n: tf.cast([n], tf.int32))
    return numbers.batch(batch_size).map(lambda batch: (batch,))


@pytest.fixture
def _first_dimensions() -> Iterator[None]:
    """Switch to TensorFlow 1's shapes, whose sizes are Dimension objects and never None."""
    v1.disable_v2_tensorshape()
    yield
    v1.enable_v2_tensorshape()


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with tf.Graph().as_default():
        yield


def test_full_batches_are_unchanged_and_have_a_mask_of_ones() -> None:
    dataset = _numbers(4, 2)
    for padding in PADDINGS:
        batches = _first(padding.pad(dataset, _batch_spec(dataset, rows=2)), 2)
        assert batches == [[[[1], [2]], [1, 1]], [[[3], [4]], [1, 1]]]


def test_padding_repeats_the_first_row() -> None:
    dataset = _numbers(6, 4)
    batches = _first(PadFinalBatch().pad(dataset, _batch_spec(dataset, rows=4)), 2)
    assert batches[1] == [[[5], [6], [5], [5]], [1, 1, 0, 0]]


def test_spreading_puts_one_real_row_in_each_shard() -> None:
    # A batch has two shards, so the three rows 5, 6 and 7 are spread over two batches.
    dataset = _numbers(7, 4)
    batches = _first(SpreadFinalBatch().pad(dataset, _batch_spec(dataset, rows=4, shards=2)), 3)
    assert batches[0] == [[[1], [2], [3], [4]], [1, 1, 1, 1]]
    assert batches[1] == [[[5], [5], [6], [6]], [2, 0, 2, 0]]
    assert batches[2] == [[[7], [7], [7], [7]], [1, 0, 0, 0]]


def test_spreading_over_one_shard_makes_a_batch_of_each_row() -> None:
    dataset = _numbers(5, 3)
    batches = _first(SpreadFinalBatch().pad(dataset, _batch_spec(dataset, rows=3)), 3)
    assert batches[1:] == [[[[4]] * 3, [2, 0, 0]], [[[5]] * 3, [1, 0, 0]]]


@pytest.mark.usefixtures("_first_dimensions")
def test_padding_works_with_the_dimensions_of_tensorflow_1() -> None:
    test_padding_repeats_the_first_row()
    test_spreading_puts_one_real_row_in_each_shard()


@pytest.mark.parametrize("padding", PADDINGS)
def test_after_the_end_the_last_batch_has_a_mask_of_zeros(
    padding: FinalBatchPadding,
) -> None:
    dataset = _numbers(3, 2)
    batches = _first(padding.pad(dataset, _batch_spec(dataset, rows=2)), 4)
    assert batches[1][1] == [1, 0]
    assert batches[2:] == [[[[3], [3]], [0, 0]]] * 2


@pytest.mark.parametrize("padding", PADDINGS)
def test_an_empty_dataset_becomes_padding_only(padding: FinalBatchPadding) -> None:
    dataset = _numbers(0, 2)
    batches = _first(padding.pad(dataset, _batch_spec(dataset, rows=2)), 2)
    assert batches == [[[[0], [0]], [0, 0]]] * 2


@pytest.mark.parametrize("padding", PADDINGS)
def test_a_batch_without_rows_is_dropped(padding: FinalBatchPadding) -> None:
    dataset = _numbers(4, 2).map(lambda batch: (tf.boolean_mask(batch, batch[:, 0] > 2),))
    batches = _first(padding.pad(dataset, _batch_spec(dataset, rows=2)), 2)
    assert batches == [[[[3], [4]], [1, 1]], [[[3], [4]], [0, 0]]]


@pytest.mark.parametrize("padding", PADDINGS)
def test_batches_of_static_shape_are_not_padded(padding: FinalBatchPadding) -> None:
    dataset = tf.data.Dataset.from_tensors((tf.constant([7, 8]),))
    batches = _first(padding.pad(dataset, _batch_spec(dataset, rows=2)), 2)
    assert batches == [[[7, 8], [1, 1]], [[7, 8], [0, 0]]]


def test_padded_batches_have_static_shapes() -> None:
    dataset = _numbers(3, 2)
    for padding in PADDINGS:
        specs = padding.pad(dataset, _batch_spec(dataset, rows=2)).element_spec
        assert [spec.shape.as_list() for spec in specs] == [[2, 1], [2]]


def test_rows_may_be_on_another_axis_and_scalars_have_none() -> None:
    def columns(batch: Any) -> Any:
        return tf.transpose(batch), tf.constant(True)

    dataset = _numbers(3, 2).map(columns)
    spec = _batch_spec(dataset, rows=2, axes=(1, None))
    _, second = _first(PadFinalBatch().pad(dataset, spec), 2)
    assert second == [
        [[3, 3]],
        True,
        [1, 0],
    ]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint32", "bool", "int8", "complex64"])
def test_batches_of_every_tpu_dtype_can_be_padded(name: str) -> None:
    dataset = _numbers(1, 2).map(lambda batch: (tf.cast(batch, name),))
    for padding in PADDINGS:
        assert _first(padding.pad(dataset, _batch_spec(dataset, rows=2)), 1) == [
            [[[1], [1]], [1, 0]]
        ]


def test_tensors_with_different_numbers_of_rows_fail() -> None:
    dataset = _numbers(3, 3).map(lambda batch: (batch, batch[1:]))
    padded = PadFinalBatch().pad(dataset, _batch_spec(dataset, rows=4, axes=(0, 0)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features.*1.*and features.*0"):
        _first(padded, 1)


def test_a_batch_larger_than_the_batch_size_fails() -> None:
    dataset = _numbers(3, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"more rows than params"):
        _first(SpreadFinalBatch().pad(dataset, _batch_spec(dataset, rows=2)), 1)
