from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import data, lookup

v1 = tf.compat.v1


def _values(dataset: Any) -> list[Any]:
    return [
        tf.nest.map_structure(lambda array: array.tolist(), element)
        for element in dataset.as_numpy_iterator()
    ]


@pytest.mark.parametrize(
    "options", [{}, {"num_parallel_batches": 2}, {"num_parallel_calls": data.AUTOTUNE}]
)
def test_map_and_batch_maps_and_drops_the_remainder(options: dict[str, Any]) -> None:
    dataset = tf.data.Dataset.range(5).apply(
        data.map_and_batch(lambda x: x * 10, 2, drop_remainder=True, **options)
    )
    assert _values(dataset) == [[0, 10], [20, 30]]
    assert dataset.element_spec.shape == [2]


def test_batches_that_are_not_full_are_dropped() -> None:
    dataset = tf.data.Dataset.range(5).apply(data.batch_and_drop_remainder(2))
    assert _values(dataset) == [[0, 1], [2, 3]]
    ragged = tf.data.Dataset.range(3).map(lambda n: tf.fill([n], n))
    padded = ragged.apply(data.padded_batch_and_drop_remainder(2, [None]))
    assert _values(padded) == [[[0], [1]]]


def test_sliding_windows_become_batches() -> None:
    numbers = tf.data.Dataset.range(6)
    assert _values(numbers.apply(data.sliding_window_batch(3, window_shift=2))) == [
        [0, 1, 2],
        [2, 3, 4],
    ]
    pairs = tf.data.Dataset.zip((numbers, {"ten": numbers.map(lambda x: x * 10)}))
    wide = pairs.apply(data.sliding_window_batch(2, stride=3, window_stride=2))
    assert _values(wide) == [([0, 2], {"ten": [0, 20]}), ([3, 5], {"ten": [30, 50]})]
    with pytest.raises(InvalidSetting, match="which mean the same"):
        data.sliding_window_batch(2, stride=1, window_shift=1)


@pytest.mark.slow
def test_element_shapes_are_set_and_checked() -> None:
    dataset = tf.data.Dataset.from_generator(lambda: [[1, 2]], tf.int32, [None])
    assert dataset.apply(data.assert_element_shape([2])).element_spec.shape == [2]
    wrong = dataset.map(lambda x: {"a": x}).apply(data.assert_element_shape({"a": [3]}))
    with pytest.raises(tf.errors.InvalidArgumentError):
        _values(wrong)


def test_files_are_read_as_documented_programs_do(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
            writer.write(name.encode())
    files = tf.data.Dataset.list_files(str(tmp_path / "*"), shuffle=False)
    read = files.apply(
        data.parallel_interleave(
            lambda name: data.TFRecordDataset(name, buffer_size=1024), 2, sloppy=False
        )
    )
    assert list(read.as_numpy_iterator()) == [b"a", b"b"]
    shuffled = read.apply(data.shuffle_and_repeat(4, count=2, seed=1))
    assert sorted(shuffled.as_numpy_iterator()) == [b"a", b"a", b"b", b"b"]
    sloppy = files.apply(data.sloppy_interleave(data.TFRecordDataset, 2))
    assert sorted(sloppy.as_numpy_iterator()) == [b"a", b"b"]


def test_sequences_are_bucketed_and_elements_grouped() -> None:
    ragged = tf.data.Dataset.from_tensor_slices([1, 5, 2, 6]).map(lambda n: tf.fill([n], n))
    bucketed = ragged.apply(data.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [4], [2, 2]))
    assert [len(batch) for batch in bucketed.as_numpy_iterator()] == [2, 2]
    groups = tf.data.Dataset.range(6).apply(
        data.group_by_window(lambda x: x % 2, lambda key, window: window.batch(3), 3)
    )
    assert _values(groups) == [[0, 2, 4], [1, 3, 5]]
    assert _values(groups.apply(data.unbatch()).take(2)) == [0, 2]
    assert _values(data.Counter(start=3, step=2).take(2)) == [3, 5]


def test_tables_map_words_to_indices_and_back(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("red\ngreen\n")
    with tf.Graph().as_default(), v1.Session() as session:
        from_file = lookup.index_table_from_file(str(tmp_path / "words"), num_oov_buckets=1)
        from_list = lookup.index_table_from_tensor(mapping=["red", "green"], default_value=7)
        back = lookup.index_to_string_table_from_tensor(mapping=["red", "green"])
        fixed = lookup.HashTable(
            lookup.KeyValueTensorInitializer(["a"], tf.constant([5], tf.int64)), -1, "shared"
        )
        lookups = [
            from_file.lookup(tf.constant(["green", "blue"])),
            from_list.lookup(tf.constant(["green", "blue"])),
            back.lookup(tf.constant([0, 9], tf.int64)),
            fixed.lookup(tf.constant(["a", "b"])),
        ]
        session.run(v1.tables_initializer())
        ids, others, words, five = session.run(lookups)
    assert (ids.tolist(), others.tolist(), five.tolist()) == ([1, 2], [1, 7], [5, -1])
    np.testing.assert_array_equal(words, [b"red", b"UNK"])
