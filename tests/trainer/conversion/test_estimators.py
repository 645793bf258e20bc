from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer.programs import variable
from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.saved_model import metagraph
from trainer.compat.contrib.training.hparam import HParams
from trainer.distribution.cross_shard import cross_replica_sum

v1 = tf.compat.v1

_X = np.linspace(-1.0, 2.0, 22)
_CLASSES = (_X > 0.3).astype(np.int64)


def input_fn() -> Any:
    """Return 22 rows in batches of 8, 8 and 6, with dtypes that an infeed does not support."""
    return tf.data.Dataset.from_tensor_slices(({"x": _X}, _CLASSES)).batch(8)


def repeated_input_fn() -> Any:
    return input_fn().repeat()


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Build a classifier with one feature and two classes, whose gradients are clipped by norm."""
    assert features["x"].dtype == tf.float64
    x = tf.cast(features["x"], tf.float32)[:, None]
    logits = v1.layers.dense(x, 2, kernel_initializer=v1.ones_initializer(), name="logits")
    classes = tf.argmax(logits, axis=1)
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.EstimatorSpec(mode, predictions={"class": classes})
    assert labels.dtype == tf.int64
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    metrics = {
        "accuracy": v1.metrics.accuracy(labels, predictions=classes),
        "mean_loss": v1.metrics.mean(loss),
    }
    if mode == trainer.ModeKeys.EVAL:
        return trainer.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = v1.train.MomentumOptimizer(params["rate"], 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 0.1)
    step = optimizer.apply_gradients(
        zip(clipped, variables, strict=True), v1.train.get_global_step()
    )
    return trainer.EstimatorSpec(mode, loss=loss, train_op=step)


@contextmanager
def sizes_as_dimensions() -> Iterator[None]:
    v1.disable_v2_tensorshape()
    try:
        yield
    finally:
        v1.enable_v2_tensorshape()


def plain(model_dir: Path, **params: Any) -> trainer.Estimator:
    config = trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=3))
    params = {"rate": 0.5, **params}
    return trainer.Estimator(model_fn, str(model_dir), config=config, params=params)


def convert_estimator(model_dir: Path, **options: Any) -> trainer.TPUEstimator:
    return trainer.to_tpu_estimator(plain(model_dir), train_batch_size=8, **options)


def eight_rows() -> Any:
    return input_fn().unbatch().repeat().batch(8)


@pytest.mark.slow
@pytest.mark.numeric
def test_training_on_four_cores_gives_the_weights_of_the_plain_estimator(tmp_path: Path) -> None:
    plain(tmp_path / "plain").train(eight_rows, steps=6)
    with tpuserve.emulated_tpu(cores=4):
        convert_estimator(tmp_path / "tpu").train(eight_rows, steps=6)
    for name in ("logits/kernel", "logits/bias", "logits/kernel/Momentum"):
        expected = variable(tmp_path / "plain", name)
        np.testing.assert_allclose(variable(tmp_path / "tpu", name), expected, rtol=1e-5)
    assert np.abs(variable(tmp_path / "tpu", "logits/bias")).max() > 0.01


@pytest.mark.slow
@pytest.mark.numeric
def test_evaluation_and_prediction_on_four_cores_are_those_of_the_plain_estimator(
    tmp_path: Path,
) -> None:
    before = plain(tmp_path).train(repeated_input_fn, steps=4)
    after = convert_estimator(tmp_path)
    expected = before.evaluate(input_fn)
    classes = [row["class"] for row in before.predict(input_fn)]
    with tpuserve.emulated_tpu(cores=4):
        metrics = after.evaluate(input_fn)
        converted_classes = [row["class"] for row in after.predict(input_fn)]
    assert metrics["accuracy"] == expected["accuracy"]
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert converted_classes == classes
    assert len(classes) == 22


@pytest.mark.slow
def test_dataset_may_have_none_in_place_of_labels_and_features(tmp_path: Path) -> None:
    def unlabelled() -> Any:
        return input_fn().map(lambda features, labels: ({**features, "pair": (labels, None)}, None))

    before = plain(tmp_path).train(repeated_input_fn, steps=4)
    expected = [row["class"] for row in before.predict(unlabelled)]
    with tpuserve.emulated_tpu(cores=2):
        rows = list(convert_estimator(tmp_path).predict(unlabelled))
    assert [row["class"] for row in rows] == expected
    assert len(expected) == 22


@pytest.mark.slow
def test_hparams_are_as_good_as_a_dict(tmp_path: Path) -> None:
    def tuned(features: Any, labels: Any, mode: str, params: HParams) -> Any:
        return model_fn(features, labels, mode, params.values())

    before = trainer.Estimator(tuned, str(tmp_path), params=HParams(rate=0.5, batch_size=8))
    expected = before.train(repeated_input_fn, steps=2).evaluate(input_fn)
    after = trainer.to_tpu_estimator(before)
    with tpuserve.emulated_tpu(cores=2):
        assert after.evaluate(input_fn)["accuracy"] == expected["accuracy"]


@pytest.mark.slow
def test_batches_are_cut_anew_where_a_size_is_a_dimension(tmp_path: Path) -> None:
    with sizes_as_dimensions(), tpuserve.emulated_tpu(cores=2):
        estimator = convert_estimator(tmp_path).train(repeated_input_fn, steps=1)
        assert estimator.evaluate(input_fn)["global_step"] == 1


@pytest.mark.slow
def test_batch_size_reaches_an_input_fn_that_takes_params(tmp_path: Path) -> None:
    sizes = []

    def sized(params: dict[str, Any]) -> Any:
        sizes.append(params["batch_size"])
        return input_fn().unbatch().repeat().batch(params["batch_size"], drop_remainder=True)

    with tpuserve.emulated_tpu(cores=2):
        convert_estimator(tmp_path).train(sized, steps=1)
    assert sizes == [8]


def test_the_batch_size_of_params_is_the_global_one(tmp_path: Path) -> None:
    estimator = trainer.to_tpu_estimator(plain(tmp_path, batch_size=4), use_tpu=False)
    assert estimator.params == {"rate": 0.5}
    estimator.train(
        lambda params: repeated_input_fn().unbatch().batch(params["batch_size"]), steps=1
    )
    assert estimator.get_variable_value("global_step") == 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.int64, tf.uint64])
def test_an_id_that_32_bits_cannot_hold_is_refused(dtype: Any, tmp_path: Path) -> None:
    def count_ids(features: Any, labels: Any, mode: str) -> Any:
        assert features.dtype == dtype
        loss = tf.reduce_sum(tf.cast(features, tf.float32))
        return trainer.EstimatorSpec(
            mode, loss=loss, train_op=v1.assign_add(v1.train.get_global_step(), 1)
        )

    def ids() -> Any:
        values = tf.constant([1, 2, 3, 2**40 + 7], dtype)
        return tf.data.Dataset.from_tensor_slices(values).batch(4)

    estimator = trainer.to_tpu_estimator(trainer.Estimator(count_ids, str(tmp_path)), 4)
    with (
        tpuserve.emulated_tpu(cores=2),
        pytest.raises(tf.errors.InvalidArgumentError, match="32 bits cannot hold"),
    ):
        estimator.train(ids, steps=1)


@pytest.mark.slow
def test_off_the_tpu_model_fn_and_input_fn_are_as_they_were(tmp_path: Path) -> None:
    estimator = convert_estimator(tmp_path, use_tpu=False).train(input_fn)
    assert estimator.get_variable_value("global_step") == 3
    assert set(estimator.evaluate(input_fn)) == {"accuracy", "mean_loss", "loss", "global_step"}


def test_tf_gradients_are_averaged_when_they_are_applied(tmp_path: Path) -> None:
    def by_hand(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean((features - w) ** 2) / 2.0
        (gradient,) = tf.gradients(loss, [w])
        step = v1.train.GradientDescentOptimizer(1.0).apply_gradients(
            [(gradient, w)], v1.train.get_global_step()
        )
        return trainer.EstimatorSpec(mode, loss=loss, train_op=step)

    def one_to_four() -> Any:
        return tf.data.Dataset.from_tensor_slices([[1.0], [2.0], [3.0], [4.0]]).batch(4)

    estimator = trainer.to_tpu_estimator(trainer.Estimator(by_hand, str(tmp_path)), 4)
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(one_to_four, steps=1)
    assert variable(tmp_path, "w") == 2.5


@pytest.mark.slow
def test_gradients_of_a_loss_with_a_sum_over_the_replicas_are_averaged(tmp_path: Path) -> None:
    def centred(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        mean = cross_replica_sum(tf.reduce_sum(features)) / 4.0
        loss = tf.reduce_mean(((features - mean) ** 2 - w) ** 2) / 2.0
        (gradient,) = tf.gradients(loss, [w])
        step = v1.train.GradientDescentOptimizer(1.0).apply_gradients(
            [(gradient, w)], v1.train.get_global_step()
        )
        return trainer.EstimatorSpec(mode, loss=loss, train_op=step)

    def rows() -> Any:
        return tf.data.Dataset.from_tensor_slices([[1.0], [2.0], [3.0], [6.0]]).batch(4)

    estimator = trainer.to_tpu_estimator(trainer.Estimator(centred, str(tmp_path)), 4)
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(rows, steps=1)
    # The squared distances from the mean 3 are 4 and 1 on one replica, and 0 and 9 on the other.
    assert variable(tmp_path, "w") == 3.5


def test_gradients_that_the_model_fn_sums_itself_stay_sums(tmp_path: Path) -> None:
    def summed(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(features * w)
        gradient = cross_replica_sum(tf.gradients(loss, [w])[0])
        step = v1.train.GradientDescentOptimizer(1.0).apply_gradients(
            [(gradient, w)], v1.train.get_global_step()
        )
        return trainer.EstimatorSpec(mode, loss=loss, train_op=step)

    estimator = trainer.to_tpu_estimator(trainer.Estimator(summed, str(tmp_path)), 4)
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(lambda: tf.data.Dataset.from_tensors(tf.ones([4, 1])), steps=1)
    assert variable(tmp_path, "w") == -2.0


def test_an_optimizer_that_is_wrapped_already_sums_once(tmp_path: Path) -> None:
    def wrapped(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(features * w)
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1.0))
        step = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.EstimatorSpec(mode, loss=loss, train_op=step)

    estimator = trainer.to_tpu_estimator(trainer.Estimator(wrapped, str(tmp_path)), 4)
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(lambda: tf.data.Dataset.from_tensors(tf.ones([4, 1])), steps=1)
    assert variable(tmp_path, "w") == -1.0


@pytest.mark.slow
def test_keras_optimizers_are_averaged_too(tmp_path: Path) -> None:
    def with_keras(features: Any, labels: Any, mode: str) -> Any:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean((features - w) ** 2) / 2.0
        optimizer = tf.keras.optimizers.legacy.SGD(1.0)
        optimizer.iterations = v1.train.get_global_step()
        (step,) = optimizer.get_updates(loss, [w])
        return trainer.EstimatorSpec(mode, loss=loss, train_op=step)

    estimator = trainer.to_tpu_estimator(trainer.Estimator(with_keras, str(tmp_path)), 4)
    data = [[1.0], [2.0], [3.0], [4.0]]
    with tpuserve.emulated_tpu(cores=2):
        estimator.train(lambda: tf.data.Dataset.from_tensor_slices(data).batch(4), steps=1)
    assert variable(tmp_path, "w") == 2.5


def test_a_metric_with_ops_of_its_own_is_refused_by_name(tmp_path: Path) -> None:
    def own(features: Any, labels: Any, mode: str) -> Any:
        zero = tf.zeros([])
        return trainer.EstimatorSpec(mode, loss=zero, eval_metric_ops={"mine": (zero, zero)})

    estimator = trainer.to_tpu_estimator(trainer.Estimator(own, str(tmp_path)), 4)
    with tpuserve.emulated_tpu(cores=2), pytest.raises(InvalidSetting, match="'mine'"):
        estimator.evaluate(lambda: tf.data.Dataset.from_tensors(tf.ones([4, 1])), steps=1)


@pytest.mark.slow
def test_exports_have_both_metagraphs(tmp_path: Path) -> None:
    plain(tmp_path / "model").train(repeated_input_fn, steps=1)
    features = {"x": tf.constant([1.0], tf.float64)}
    receiver = trainer.export.build_raw_serving_input_receiver_fn(features)
    exported = convert_estimator(tmp_path / "model").export_saved_model(
        str(tmp_path / "out"), receiver
    )
    tags = [graph.tags for graph in metagraph.read_metagraphs(exported.decode())]
    assert sorted(map(sorted, tags)) == [["serve"], ["serve", "tpu"]]


@pytest.mark.parametrize("what", ["a TPUEstimator", "no estimator"])
def test_other_things_than_a_plain_estimator_are_refused(what: str, tmp_path: Path) -> None:
    estimator: Any = convert_estimator(tmp_path) if what == "a TPUEstimator" else model_fn
    with pytest.raises(InvalidType):
        trainer.to_tpu_estimator(estimator, 8)


def test_batch_size_of_any_mutable_mapping_is_taken(tmp_path: Path) -> None:
    params = UserDict(rate=0.5, batch_size=8)
    before = trainer.Estimator(model_fn, str(tmp_path), params=params)
    assert trainer.to_tpu_estimator(before).params == {"rate": 0.5}


def test_params_without_items_are_refused(tmp_path: Path) -> None:
    before = trainer.Estimator(model_fn, str(tmp_path), params=SimpleNamespace(rate=0.5))
    with pytest.raises(InvalidType, match="Give a dict of hyperparameters"):
        trainer.to_tpu_estimator(before, train_batch_size=8)


def test_a_batch_size_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no train_batch_size"):
        trainer.to_tpu_estimator(plain(tmp_path))
