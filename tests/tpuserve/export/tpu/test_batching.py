from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import BatchConfig
from tpuserve.export.tpu.batching import call_batched

v1 = tf.compat.v1

CONFIG = BatchConfig(1, 4, 1000, [2, 4])


@pytest.fixture
def _first_dimensions() -> Iterator[None]:
    """Let shapes return their sizes as TensorFlow 1 does: as Dimension objects, never as None."""
    v1.disable_v2_tensorshape()
    yield
    v1.enable_v2_tensorshape()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 4, 0, [4]), InvalidSetting, "num_batch_threads is 0"),
        ((1, -1, 0, [4]), InvalidSetting, "max_batch_size is -1"),
        ((1, 4, -1, [4]), InvalidSetting, "batch_timeout_micros is -1"),
        ((1, 4, 0, [4], 0), InvalidSetting, "max_enqueued_batches is 0"),
        ((1, 4, 0, [0, 4]), InvalidSetting, "A size of allowed_batch_sizes is 0"),
        ((1, 4, 0, [4, 2]), InvalidSetting, r"is \[4, 2\]\. Give each size once"),
        ((1, 4, 0, [2, 2, 4]), InvalidSetting, "Give each size once"),
        ((1, 4, 0, [1, 2]), InvalidSetting, "ends with 2, and max_batch_size is 4"),
        ((1.0, 4, 0, [4]), InvalidType, "num_batch_threads is 1.0"),
        ((True, 4, 0, [4]), InvalidType, "num_batch_threads is True"),
        ((1, 4, 0, "4"), InvalidType, "allowed_batch_sizes is '4'"),
        ((1, 4, 0, 4), InvalidType, "allowed_batch_sizes is 4"),
    ],
)
def test_impossible_settings_are_refused(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        BatchConfig(*arguments)


def test_no_allowed_sizes_mean_no_padding() -> None:
    assert BatchConfig(1, 4, 0, None).allowed_batch_sizes == ()
    assert BatchConfig(1, 4, 0, []).max_enqueued_batches == 100


def test_a_batch_is_padded_to_an_allowed_size_and_rows_come_back() -> None:
    def rows_of(nest: dict[str, Any]) -> dict[str, Any]:
        count = tf.ones_like(nest["x"]) * tf.cast(tf.shape(nest["x"])[0], tf.float32)
        return {"count": count, "twice": [nest["x"] * 2.0], "name": nest["name"]}

    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 1])
        name = v1.placeholder(tf.string, [None])
        results = call_batched(rows_of, {"x": x, "name": name, "none": None}, CONFIG)
        assert results["count"].shape.as_list() == [None, 1]
        outputs = session.run(results, {x: [[1.0], [2.0], [3.0]], name: ["a", "b", "c"]})
    assert outputs["count"].ravel().tolist() == [4.0] * 3
    assert outputs["twice"][0].ravel().tolist() == [2.0, 4.0, 6.0]
    assert outputs["name"].tolist() == [b"a", b"b", b"c"]


def test_a_request_larger_than_a_batch_is_refused() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None])
        y = call_batched(lambda x: x + 1.0, x, CONFIG)
        with pytest.raises(tf.errors.InvalidArgumentError, match="larger than maximum"):
            session.run(y, {x: range(7)})


@pytest.mark.usefixtures("_first_dimensions")
def test_sizes_are_compared_in_tensorflow_1_as_well() -> None:
    with tf.Graph().as_default():
        inputs = [v1.placeholder(tf.float32, [None]), tf.ones([2]), tf.ones([2])]
        assert call_batched(lambda nest: nest[1], inputs, CONFIG).shape.as_list() == [2]
        with pytest.raises(ExportError, match="have 2 and 3 rows"):
            call_batched(lambda nest: nest, [tf.ones([2]), tf.ones([3])], CONFIG)


def test_variables_are_created_outside_and_captured() -> None:
    def scaled(x: Any) -> Any:
        return x * v1.get_variable("scale", initializer=3.0, use_resource=True)

    with tf.Graph().as_default() as graph, v1.Session() as session:
        y = call_batched(scaled, tf.constant([1.0, 2.0]), CONFIG)
        assert y.shape.as_list() == [2]
        (variable,) = v1.global_variables()
        assert variable.name == "scale:0"
        assert variable.graph is graph
        session.run(variable.initializer)
        assert session.run(y).tolist() == [3.0, 6.0]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda: tf.sparse.from_dense([[1.0]]), "is a SparseTensor"),
        (lambda: tf.ragged.constant([[1.0]]), "is a RaggedTensor"),
        (lambda: tf.constant(1.0), "is a scalar, which has no rows"),
        (lambda: [tf.ones([2]), tf.ones([3])], "have 2 and 3 rows"),
        (lambda: None, "has no input"),
    ],
    ids=["sparse", "ragged", "scalar", "uneven", "none"],
)
def test_inputs_without_rows_are_refused(inputs: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ExportError, match=message):
        call_batched(lambda nest: nest, inputs(), CONFIG)


@pytest.mark.parametrize(
    ("function", "message"),
    [(tf.reduce_sum, "is a scalar, and results"), (lambda x: {"y": 1}, "returned 1, which is")],
)
def test_results_without_rows_are_refused(function: Any, message: str) -> None:
    with tf.Graph().as_default(), pytest.raises(ExportError, match=message):
        call_batched(function, tf.ones([2]), CONFIG)
