from typing import Any

import pytest
import tensorflow as tf

import trainer
from tpuserve.errors import InvalidSetting

X = tf.constant([[1.0, 2.0]])


def test_single_tensors_get_names() -> None:
    receiver = trainer.ServingInputReceiver(X, X, {"other": X})
    assert list(receiver.features) == ["feature"]
    assert list(receiver.receiver_tensors) == ["input"]
    assert receiver.receiver_tensors_alternatives is not None
    assert list(receiver.receiver_tensors_alternatives["other"]) == ["input"]


def test_sparse_and_ragged_features_are_features() -> None:
    features = {"s": tf.sparse.from_dense(X), "r": tf.ragged.constant([[1], [2, 3]])}
    assert trainer.ServingInputReceiver(features, X).features == features


def test_a_tensor_receiver_leaves_its_feature_a_tensor() -> None:
    assert trainer.TensorServingInputReceiver(X, X).features is X
    with pytest.raises(InvalidSetting, match="Give one tensor"):
        trainer.TensorServingInputReceiver({"x": X}, X)


def test_labels_may_have_integer_keys_and_requests_name_them_as_text() -> None:
    build_receiver = trainer.export.build_raw_supervised_input_receiver_fn
    with tf.Graph().as_default():
        like = tf.compat.v1.placeholder(tf.float32, [None])
        receiver = build_receiver({"x": like}, {43: like})()
    assert list(receiver.labels) == [43]
    assert list(receiver.receiver_tensors) == ["x", "43"]


def test_features_may_have_integer_keys_and_requests_name_them_as_text() -> None:
    with tf.Graph().as_default():
        receiver = trainer.build_raw_serving_input_receiver_fn({7: tf.ones([2])})()
    assert list(receiver.features) == [7]
    assert list(receiver.receiver_tensors) == ["7"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, X), "features must be defined"),
        ((X, None), "receiver_tensors must be defined"),
        ((X, {1: X}), "has the key 1. Keys must be strings"),
        (({"x": 3}, X), "has 'x': 3"),
        ((X, {"x": 3}), "has 'x': 3"),
        ((X, X, [X]), "receiver_tensors_alternatives is "),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        trainer.ServingInputReceiver(*arguments)


def test_placeholders_are_like_the_tensors_with_a_batch_of_their_own() -> None:
    with tf.Graph().as_default():
        like = {"x": tf.zeros([7, 3], tf.int32), "text": tf.compat.v1.placeholder(tf.string)}
        receiver = trainer.build_raw_serving_input_receiver_fn(like, default_batch_size=5)()
    x, anything = receiver.features["x"], receiver.features["text"]
    assert (x.shape.as_list(), x.dtype, x.op.type) == ([5, 3], tf.int32, "Placeholder")
    assert (anything.shape.rank, anything.op.name) == (None, "text")


def test_a_supervised_receiver_is_fed_features_and_labels() -> None:
    with tf.Graph().as_default():
        x, y = tf.zeros([2, 3]), tf.zeros([2])
        receiver = trainer.build_raw_supervised_input_receiver_fn({"x": x}, y)()
    assert list(receiver.receiver_tensors) == ["x", "label"]
    assert receiver.labels is receiver.receiver_tensors["label"]
    assert receiver.features["x"].shape.as_list() == [None, 3]


def test_features_and_labels_have_names_apart() -> None:
    with pytest.raises(InvalidSetting, match="distinct keys, and both have x"):
        trainer.build_raw_supervised_input_receiver_fn({"x": X}, {"x": X})


def test_a_bare_feature_of_a_supervised_receiver_is_fed_as_input() -> None:
    with tf.Graph().as_default():
        receiver = trainer.export.build_raw_supervised_input_receiver_fn(X, X)()
    assert list(receiver.receiver_tensors) == ["input", "label"]
    assert receiver.features is receiver.receiver_tensors["input"]


def test_a_supervised_receiver_is_like_the_batches_of_an_input_fn() -> None:
    def input_fn(rows: int) -> tf.data.Dataset:
        x = tf.zeros([6, 3])
        return tf.data.Dataset.from_tensor_slices(({"x": x}, tf.range(6))).batch(rows)

    make = trainer.export.build_supervised_input_receiver_fn_from_input_fn(input_fn, rows=2)
    with tf.Graph().as_default() as graph:
        receiver = make()
    assert {op.type for op in graph.get_operations()} == {"Placeholder"}
    assert list(receiver.receiver_tensors) == ["x", "label"]
    assert receiver.features["x"].shape.as_list() == [None, 3]
    assert receiver.labels.dtype == tf.int32


def test_an_unsupervised_receiver_has_features_only() -> None:
    receiver = trainer.export.UnsupervisedInputReceiver(X, X)
    assert isinstance(receiver, trainer.ServingInputReceiver)
    assert (list(receiver.features), list(receiver.receiver_tensors)) == (["feature"], ["input"])
