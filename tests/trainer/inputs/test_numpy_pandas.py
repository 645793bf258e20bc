import collections
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidType
from trainer.hooks import training_hooks
from trainer.inputs import numpy_input_fn, pandas_input_fn

pandas = pytest.importorskip("pandas")

X = np.arange(10.0, 15.0, dtype=np.float32)
Y = np.arange(5, dtype=np.int32)


def batches(input_fn: Any, most: int = 10) -> list[Any]:
    """Return at most `most` batches of an input_fn, as numpy arrays."""
    return list(input_fn().take(most).as_numpy_iterator())


def test_rows_come_in_batches_and_the_last_is_smaller() -> None:
    results = batches(numpy_input_fn({"a": X}, Y, batch_size=2, shuffle=False))
    assert [batch["a"].tolist() for batch, _ in results] == [[10.0, 11.0], [12.0, 13.0], [14.0]]
    assert [labels.tolist() for _, labels in results] == [[0, 1], [2, 3], [4]]


def test_a_batch_can_hold_the_end_of_one_epoch_and_the_start_of_the_next() -> None:
    results = batches(numpy_input_fn(X, batch_size=4, num_epochs=2, shuffle=False))
    assert [batch.tolist() for batch in results] == [
        [10.0, 11.0, 12.0, 13.0],
        [14.0, 10.0, 11.0, 12.0],
        [13.0, 14.0],
    ]


def test_none_epochs_never_end_and_have_static_shapes() -> None:
    input_fn = numpy_input_fn({"a": np.ones([3, 2])}, batch_size=2, num_epochs=None, shuffle=True)
    assert input_fn().element_spec == {"a": tf.TensorSpec([2, 2], tf.float64)}
    assert len(batches(input_fn, most=100)) == 100


def test_the_shape_is_static_just_where_all_batches_are_full() -> None:
    specs = [
        numpy_input_fn(X, batch_size=size, shuffle=False)().element_spec.shape.as_list()
        for size in (5, 4)
    ]
    assert specs == [[5], [None]]


def test_shuffling_gives_each_row_once_an_epoch_in_another_order() -> None:
    rows = np.arange(100)
    input_fn = numpy_input_fn(rows, batch_size=100, num_epochs=2, shuffle=True)
    first, second = (batch.tolist() for batch in batches(input_fn))
    assert sorted(first) == sorted(second) == rows.tolist()
    assert first != second


def test_labels_can_be_a_dict_and_features_strings() -> None:
    features = collections.OrderedDict(name=np.array(["a", "bc"]))
    ((results, labels),) = batches(numpy_input_fn(features, {"y": Y[:2]}, shuffle=False))
    assert results["name"].tolist() == [b"a", b"bc"]
    assert labels["y"].tolist() == [0, 1]


def test_an_estimator_trains_and_evaluates_on_arrays(tmp_path: Path) -> None:
    ones = np.ones([5, 1], np.float32)
    estimator = programs.estimator(tmp_path)
    training = numpy_input_fn({"x": ones}, ones, batch_size=2, num_epochs=None, shuffle=True)
    estimator.train(training, max_steps=2)
    evaluation = numpy_input_fn({"x": ones}, ones, batch_size=2, shuffle=False)
    assert estimator.evaluate(evaluation)["mean_y"] == 0.75


def _run_times(element: Any, times: int) -> list[Any]:
    with tf.compat.v1.Session() as session:
        return [session.run(element) for _ in range(times)]


def test_a_program_of_tensorflow_1_gets_tensors_that_a_session_runs() -> None:
    with tf.Graph().as_default():
        features, labels = numpy_input_fn({"a": X}, Y, batch_size=2, shuffle=True)()
        sums = tf.reduce_sum(features["a"] - tf.cast(labels, tf.float32))
        assert _run_times(sums, 3) == [20.0, 20.0, 10.0]
        with pytest.raises(tf.errors.OutOfRangeError):
            _run_times(sums, 4)
        features, labels = pandas_input_fn(
            pandas.DataFrame({"a": X}), pandas.Series(Y), shuffle=False, queue_capacity=None
        )()
        assert _run_times(features["a"][0] + tf.cast(labels[1], tf.float32), 1) == [11.0]


def test_no_epochs_are_no_rows() -> None:
    assert not batches(numpy_input_fn(X, batch_size=5, num_epochs=0, shuffle=False))
    table = pandas.DataFrame({"a": X})
    assert not batches(pandas_input_fn(table, batch_size=5, num_epochs=0, shuffle=False))


def test_a_baseline_that_uses_only_the_number_of_rows_ends_with_the_input(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        y = tf.ones([tf.shape(features["x"])[0]])
        return trainer.EstimatorSpec(mode, predictions={"y": y}, loss=tf.reduce_mean(y))

    estimator = trainer.Estimator(model_fn, str(tmp_path))
    rows = numpy_input_fn({"x": np.zeros([4, 1])}, batch_size=2, shuffle=False)
    # The limits let the test end where the input does not.
    predictions = itertools.islice(estimator.predict(rows), 5)
    assert [row["y"] for row in predictions] == [1.0] * 4
    hook = training_hooks.StopAfterRunsHook(3)
    estimator.evaluate(rows, hooks=[hook])
    assert hook.done == 2


@pytest.mark.slow
@pytest.mark.parametrize("cores", [0, 2])
def test_tensors_of_arrays_keep_the_end_of_the_input_on_a_tpu(tmp_path: Path, cores: int) -> None:
    ones = np.ones([5, 1], np.float32)
    estimator = programs.estimator(
        tmp_path, use_tpu=cores > 0, train_batch_size=4, eval_batch_size=4, predict_batch_size=4
    )
    with tpuserve.emulated_tpu(cores=cores or 1, compiled=False):
        estimator.train(
            numpy_input_fn({"x": ones}, ones, batch_size=4, num_epochs=None, shuffle=True),
            max_steps=1,
        )
        rows = numpy_input_fn({"x": ones}, ones, batch_size=4, shuffle=False)
        assert estimator.evaluate(rows)["mean_y"] == 0.5
        assert [prediction["y"] for prediction in estimator.predict(rows)] == [0.5] * 5


def test_arrays_are_not_put_into_the_graph() -> None:
    ones = np.ones([100_000, 1], np.float32)
    with tf.Graph().as_default() as graph:
        numpy_input_fn({"x": ones}, ones, shuffle=False)()
    assert graph.as_graph_def().ByteSize() < ones.nbytes


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"shuffle": None}, "shuffle is None. It must be provided and explicitly set as boolean"),
        ({"shuffle": 1}, "shuffle is 1"),
        ({"x": {}}, "x cannot be an empty dict"),
        ({"y": {}}, "y cannot be an empty dict"),
        ({"y": Y[:4]}, "mismatched; .*: x\\['a'\\] has 5, y has 4"),
        ({"x": {"a": X, "b": X[:1]}}, "x\\['b'\\] has 1"),
        ({"y": {"a": Y}}, "1 keys are found in both x and y: a"),
        ({"x": {"a": X[:0]}, "y": None}, "no rows to give"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"num_epochs": -1}, "num_epochs is -1"),
    ],
)
def test_impossible_arrays_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        numpy_input_fn(**{"x": {"a": X}, "y": Y, "shuffle": False, **changes})


def test_features_of_another_type_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="x must be a dict or array; found list"):
        numpy_input_fn([1.0], shuffle=False)
    with pytest.raises(InvalidType, match="x must be a pandas DataFrame; found dict"):
        pandas_input_fn({"a": X}, shuffle=False)


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.array(["a", None]), "x\\['a'\\] holds objects, such as None as number 1"),
        (np.array(["2020-01-01"], "datetime64[D]"), "x\\['a'\\] has type datetime64"),
    ],
)
def test_types_that_tensorflow_has_not_are_named(array: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        numpy_input_fn({"a": array}, shuffle=False)


def table() -> Any:
    return pandas.DataFrame({"a": X, "name": list("pqrst")}, index=range(100, 105))


def test_columns_of_a_table_are_features_and_a_series_labels() -> None:
    labels = pandas.Series(Y, index=range(100, 105))
    results = batches(pandas_input_fn(table(), labels, batch_size=3, shuffle=False))
    assert [batch["a"].tolist() for batch, _ in results] == [[10.0, 11.0, 12.0], [13.0, 14.0]]
    assert [batch["name"].tolist() for batch, _ in results] == [[b"p", b"q", b"r"], [b"s", b"t"]]
    assert [batch.tolist() for _, batch in results] == [[0, 1, 2], [3, 4]]


def test_a_table_of_labels_is_a_dict_of_them() -> None:
    labels = pandas.DataFrame({"a": Y, "b": Y * 2}, index=range(100, 105))
    ((_, results),) = batches(pandas_input_fn(table(), labels, shuffle=False))
    assert results["b"].tolist() == [0, 2, 4, 6, 8]


def test_a_table_without_labels_gives_features_alone() -> None:
    (results,) = batches(pandas_input_fn(table(), shuffle=False))
    assert sorted(results) == ["a", "name"]


def test_table_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no rows to give: x\['a'\] has 0"):
        pandas_input_fn(table()[:0], shuffle=True)


def test_rows_of_labels_must_be_those_of_the_table() -> None:
    with pytest.raises(ValueError, match="Index for x and y are mismatched: 5 rows from 100"):
        pandas_input_fn(table(), pandas.Series(Y), shuffle=False)


def test_the_target_column_must_be_free() -> None:
    labels = pandas.Series(Y, index=range(100, 105))
    with pytest.raises(ValueError, match="Cannot use name a for target column"):
        pandas_input_fn(table(), labels, shuffle=False, target_column="a")
    with pytest.raises(ValueError, match="shuffle is None"):
        pandas_input_fn(table(), labels)


def test_the_dataset_of_an_input_fn_is_not_written_into_metagraphs() -> None:
    with tf.Graph().as_default():
        numpy_input_fn({"x": np.zeros([2])}, shuffle=False)()
        assert set(tf.compat.v1.train.export_meta_graph().collection_def) == {"iterators"}
