"""Evaluation, prediction and export of a model with embedding tables, and its input modes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import exports
from tests.trainer.backends.tpu import slope
from tests.trainer.embedding import sums
from tpuserve.runtime import loader

pytestmark = pytest.mark.slow

# The activations of `sums.IDS` are means of rows of `sums.INITIAL`, whose sums are 0.1, 0.5, 0.9,
# 1.3, 1.7, 2.1 and 2.5: y of a row is the mean of those of its ids.
Y = [(0.5 + 0.9) / 2, 1.3, (1.7 + 2.5 + 1.3) / 3, (0.5 + 1.3 + 0.5) / 3]


def unlabelled_input_fn(*batches: Any) -> Any:
    def input_fn(params: Any) -> Any:
        return (
            sums.batches(*batches)(params).map(lambda features, labels: features).take(len(batches))
        )

    return input_fn


@pytest.fixture(scope="module")
def trained_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with a checkpoint of the initial table: the rate is 0."""
    directory = tmp_path_factory.mktemp("trained")
    estimator(directory, use_tpu=False).train(sums.batches(sums.IDS), steps=1)
    return directory


def estimator(model_dir: Path, **options: Any) -> trainer.TPUEstimator:
    return sums.estimator(model_dir, sums.spec(learning_rate=0.0), **options)


@pytest.mark.parametrize("cores", [None, 2, 4])
@pytest.mark.numeric
def test_evaluation_and_predictions_are_those_of_the_table(
    cores: int | None, trained_model_dir: Path
) -> None:
    with slope.tpu(cores or 2):
        model = estimator(trained_model_dir, use_tpu=cores is not None)
        predictions = [
            row["y"][0] for row in model.predict(unlabelled_input_fn(sums.IDS, sums.IDS[::-1]))
        ]
        loss = model.evaluate(sums.batches(sums.IDS), steps=1)["loss"]
    np.testing.assert_allclose(predictions, [*Y, *Y[::-1]], rtol=1e-6)
    assert loss == pytest.approx(np.mean([(y - 1) ** 2 / 2 for y in Y]), rel=1e-6)


@pytest.mark.parametrize("use_tpu", [False, True])
@pytest.mark.numeric
def test_a_train_op_that_is_built_in_every_mode_is_no_obstacle(
    use_tpu: bool, tmp_path: Path
) -> None:
    with slope.tpu(2):
        model = estimator(tmp_path, use_tpu=use_tpu, model=sums.model_fn_with_train_op)
        model.train(sums.batches(sums.IDS), steps=1)
        predictions = [row["y"][0] for row in model.predict(unlabelled_input_fn(sums.IDS))]
        loss = model.evaluate(sums.batches(sums.IDS), steps=1)["loss"]
    np.testing.assert_allclose(predictions, Y, rtol=1e-6)
    assert loss == pytest.approx(np.mean([(y - 1) ** 2 / 2 for y in Y]), rel=1e-6)


@pytest.mark.numeric
def test_a_smaller_last_batch_is_predicted(trained_model_dir: Path) -> None:
    def input_fn(params: Any) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices({"x": sums.sparse(sums.IDS + sums.IDS[:2])})
        return dataset.batch(params["batch_size"])

    with slope.tpu(2):
        predictions = [row["y"][0] for row in estimator(trained_model_dir).predict(input_fn)]
    np.testing.assert_allclose(predictions, [*Y, *Y[:2]], rtol=1e-6)


@pytest.mark.numeric
def test_batches_of_replicas_may_have_different_numbers_of_ids(tmp_path: Path) -> None:
    def input_fn(params: Any) -> Any:
        # Each replica takes a batch of its own: one has 1 id at most, the other 4.
        first, second = [[1], [2]], [[3, 3, 3, 4], [5, -1, -1, -1]]
        return sums.batches(first, second)(params)

    with slope.tpu(2):
        per_host = trainer.InputPipelineConfig.PER_HOST_V2
        model = sums.estimator(tmp_path / "2", sums.spec(), per_host_input_for_training=per_host)
        model.train(input_fn, steps=1)
    together = sums.batches([[1, -1, -1, -1], [2, -1, -1, -1], [3, 3, 3, 4], [5, -1, -1, -1]])
    sums.estimator(tmp_path / "1", sums.spec(), use_tpu=False).train(together, steps=1)
    after = [sums.variables(tmp_path / name)["words"] for name in "12"]
    np.testing.assert_allclose(after[1], after[0], atol=1e-6)


@pytest.mark.numeric
def test_batches_of_hosts_may_have_different_numbers_of_ids(tmp_path: Path) -> None:
    def input_fn(params: Any) -> Any:
        first, second = [[1], [2]], [[3, 3, 3, 4], [5, -1, -1, -1]]
        is_first = params["context"].current_host == 0
        return sums.batches(first if is_first else second)(params)

    with tpuserve.emulated_tpu(4, hosts=2):
        sums.estimator(tmp_path / "2", sums.spec()).train(input_fn, steps=1)
    together = sums.batches([[1, -1, -1, -1], [2, -1, -1, -1], [3, 3, 3, 4], [5, -1, -1, -1]])
    sums.estimator(tmp_path / "1", sums.spec(), use_tpu=False).train(together, steps=1)
    after = [sums.variables(tmp_path / name)["words"] for name in "12"]
    np.testing.assert_allclose(after[1], after[0], atol=1e-6)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_an_id_that_the_table_does_not_have_ends_the_training(
    use_tpu: bool, tmp_path: Path
) -> None:
    model = sums.estimator(tmp_path, sums.spec(), use_tpu=use_tpu, batch_size=2)
    with (
        slope.tpu(2),
        pytest.raises(tf.errors.InvalidArgumentError, match="its rows are 0 to 6. Raise vocab"),
    ):
        model.train(sums.batches([[1], [7]]), steps=1)


@pytest.mark.numeric
def test_both_metagraphs_of_an_export_look_ids_up(trained_model_dir: Path, tmp_path: Path) -> None:
    parsed = {"x": tf.io.VarLenFeature(tf.int64)}
    receiver = trainer.export.build_parsing_serving_input_receiver_fn(parsed)
    written = estimator(trained_model_dir).export_saved_model(str(tmp_path), receiver)
    examples = exports.strings([_example(row) for row in sums.IDS])
    for tag_set, hardware in exports.HARDWARE.items():
        model = loader.load(Path(written.decode()), tag_set, hardware)
        predictions = model.run("serving_default", {"examples": examples})["y"]
        np.testing.assert_allclose(predictions[:, 0], Y, rtol=1e-5, err_msg=str(tag_set))
        model.close()


def _example(ids: list[int]) -> bytes:
    example = tf.train.Example()
    values = example.features.feature["x"].int64_list.value
    values.extend(row_id for row_id in ids if row_id >= 0)
    return bytes(example.SerializeToString())


@pytest.mark.numeric
def test_sequences_have_a_row_for_each_of_their_ids(tmp_path: Path) -> None:
    shapes = []

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        shapes.append((features["x"].shape.as_list(), features["x_seq_length_"].shape.as_list()))
        activations = tf.reduce_sum(features["x"], [1, 2])
        lengths = tf.cast(features["x_seq_length_"], tf.float32)
        return trainer.TPUEstimatorSpec(mode, predictions={"y": activations, "n": lengths})

    spec = sums.spec(max_sequence_length=2, learning_rate=0.0)
    with slope.tpu(2):
        model = sums.estimator(tmp_path, spec, model=_train_or(model_fn))
        model.train(sums.batches(sums.IDS), steps=1)
        rows = list(model.predict(unlabelled_input_fn(sums.IDS)))
    assert shapes == [([2, 2, 2], [2])]
    np.testing.assert_allclose([row["n"] for row in rows], [2, 1, 2, 2])
    # The third id of a row is cut.
    np.testing.assert_allclose([row["y"] for row in rows], [1.4, 1.3, 4.2, 1.8], rtol=1e-6)


def _train_or(predict: Any) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        if mode == trainer.ModeKeys.PREDICT:
            return predict(features, labels, mode)
        return sums.model_fn({"x": tf.reduce_sum(features["x"], 1)}, labels, mode)

    return model_fn
