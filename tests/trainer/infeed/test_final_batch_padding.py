from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import tensorflow as tf

from trainer.infeed import final_batch_padding, tensor_nest

pytestmark = pytest.mark.slow

v1 = tf.compat.v1


def _whole(dataset: Any, rows: int, shards: int = 1, axes: Sequence[int | None] = (0,)) -> Any:
    leaves = tensor_nest.build_tensor_nest(
        {str(at): spec for at, spec in enumerate(dataset.element_spec)}
    ).leaves
    return final_batch_padding.BatchSpec(leaves, tuple(axes), rows, shards)


def _first(dataset: Any, count: int) -> list[list[Any]]:
    """The first elements, each tensor as a list."""
    following = v1.data.make_one_shot_iterator(dataset).get_next()
    with v1.Session() as session:
        return [[each.tolist() for each in session.run(following)] for _ in range(count)]


def _numbers(last: int, batch_size: int) -> Any:
    """Rows [1], [2], ... in batches, as flat tuples."""
    numbers = tf.data.Dataset.range(1, last + 1).map(lambda n: tf.cast([n], tf.int32))
    return numbers.batch(batch_size).map(lambda batch: (batch,))


@pytest.fixture
def _first_dimensions() -> Iterator[None]:
    """Shapes give their sizes as TensorFlow 1 does, which are no numbers and never None."""
    v1.disable_v2_tensorshape()
    yield
    v1.enable_v2_tensorshape()


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with tf.Graph().as_default():
        yield


def test_whole_batches_stay_as_they_are_and_are_all_real() -> None:
    dataset = _numbers(4, 2)
    for make_whole in (final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch):
        found = _first(make_whole(dataset, _whole(dataset, rows=2)), 2)
        assert found == [[[[1], [2]], [1, 1]], [[[3], [4]], [1, 1]]]


def test_padding_repeats_the_first_row() -> None:
    dataset = _numbers(6, 4)
    found = _first(final_batch_padding.pad_final_batch(dataset, _whole(dataset, rows=4)), 2)
    assert found[1] == [[[5], [6], [5], [5]], [1, 1, 0, 0]]


def test_tiling_puts_one_real_row_in_each_shard() -> None:
    dataset = _numbers(7, 4)  # Two shards of two rows: 5, 6 and 7 need two batches.
    found = _first(
        final_batch_padding.spread_final_batch(dataset, _whole(dataset, rows=4, shards=2)), 3
    )
    assert found[0] == [[[1], [2], [3], [4]], [1, 1, 1, 1]]
    assert found[1] == [[[5], [5], [6], [6]], [1, 0, 1, 0]]
    assert found[2] == [[[7], [7], [7], [7]], [1, 0, 0, 0]]


def test_tiling_for_one_shard_makes_a_batch_of_each_row() -> None:
    dataset = _numbers(5, 3)
    found = _first(final_batch_padding.spread_final_batch(dataset, _whole(dataset, rows=3)), 3)
    assert found[1:] == [[[[4]] * 3, [1, 0, 0]], [[[5]] * 3, [1, 0, 0]]]


@pytest.mark.usefixtures("_first_dimensions")
def test_batches_are_filled_up_in_tensorflow_1_as_well() -> None:
    test_padding_repeats_the_first_row()
    test_tiling_puts_one_real_row_in_each_shard()


@pytest.mark.parametrize(
    "make_whole", [final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch]
)
def test_after_the_end_the_last_batch_is_repeated_with_no_real_row(make_whole: Any) -> None:
    dataset = _numbers(3, 2)
    found = _first(make_whole(dataset, _whole(dataset, rows=2)), 4)
    assert found[1][1] == [1, 0]
    assert found[2:] == [[[[3], [3]], [0, 0]]] * 2


@pytest.mark.parametrize(
    "make_whole", [final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch]
)
def test_an_empty_dataset_is_filler_from_the_start(make_whole: Any) -> None:
    dataset = _numbers(0, 2)
    found = _first(make_whole(dataset, _whole(dataset, rows=2)), 2)
    assert found == [[[[0], [0]], [0, 0]]] * 2


@pytest.mark.parametrize(
    "make_whole", [final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch]
)
def test_a_batch_without_rows_is_left_out(make_whole: Any) -> None:
    dataset = _numbers(4, 2).map(lambda batch: (tf.boolean_mask(batch, batch[:, 0] > 2),))
    found = _first(make_whole(dataset, _whole(dataset, rows=2)), 2)
    assert found == [[[[3], [4]], [1, 1]], [[[3], [4]], [0, 0]]]


@pytest.mark.parametrize(
    "make_whole", [final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch]
)
def test_a_known_number_of_rows_needs_no_completion(make_whole: Any) -> None:
    dataset = tf.data.Dataset.from_tensors((tf.constant([7, 8]),))
    found = _first(make_whole(dataset, _whole(dataset, rows=2)), 2)
    assert found == [[[7, 8], [1, 1]], [[7, 8], [0, 0]]]


def test_shapes_are_static_afterwards() -> None:
    dataset = _numbers(3, 2)
    for make_whole in (final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch):
        specs = make_whole(dataset, _whole(dataset, rows=2)).element_spec
        assert [each.shape.as_list() for each in specs] == [[2, 1], [2]]


def test_rows_may_be_on_another_axis_and_scalars_have_none() -> None:
    def columns(batch: Any) -> Any:
        return tf.transpose(batch), tf.constant(True)

    dataset = _numbers(3, 2).map(columns)
    whole = _whole(dataset, rows=2, axes=(1, None))
    _, second = _first(final_batch_padding.pad_final_batch(dataset, whole), 2)
    assert second == [
        [[3, 3]],
        True,
        [1, 0],
    ]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "uint32", "bool", "int8", "complex64"])
def test_every_type_of_a_tpu_can_be_filled_up(name: str) -> None:
    dataset = _numbers(1, 2).map(lambda batch: (tf.cast(batch, name),))
    for make_whole in (final_batch_padding.pad_final_batch, final_batch_padding.spread_final_batch):
        assert _first(make_whole(dataset, _whole(dataset, rows=2)), 1) == [[[[1], [1]], [1, 0]]]


def test_tensors_must_agree_on_their_rows() -> None:
    dataset = _numbers(3, 3).map(lambda batch: (batch, batch[1:]))
    padded = final_batch_padding.pad_final_batch(dataset, _whole(dataset, rows=4, axes=(0, 0)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"features.*1.*and features.*0"):
        _first(padded, 1)


def test_a_batch_must_not_be_larger_than_was_asked_for() -> None:
    dataset = _numbers(3, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"more rows than params"):
        _first(final_batch_padding.spread_final_batch(dataset, _whole(dataset, rows=2)), 1)
