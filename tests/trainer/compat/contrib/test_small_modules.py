"""The small modules of tf.contrib."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tests.trainer import programs
from tpuserve.errors import CheckpointMismatch, InvalidSetting, SignatureNotFound
from trainer.compat.contrib import (
    eager,
    framework,
    image,
    losses,
    metrics,
    predictor,
    seq2seq,
    tfprof,
    training,
)
from trainer.exporting.input_receivers import build_raw_serving_input_receiver_fn

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def _run_fetches(fetches: Any) -> Any:
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        return session.run(fetches)


def test_variables_are_found_by_scope_suffix_and_collection() -> None:
    with v1.variable_scope("a"):
        w = framework.model_variable("w", [], initializer=v1.zeros_initializer())
        b = framework.variable("b", [], initializer=v1.zeros_initializer(), device="/cpu:0")
    with v1.variable_scope("c"):
        other = framework.variable("w", [], initializer=v1.zeros_initializer())
    local = framework.local_variable(1.0, name="local")
    assert framework.get_variables("a") == [w, b]
    assert framework.get_variables_by_suffix("w") == [w, other]
    assert framework.get_model_variables() == [w]
    assert framework.get_local_variables() == [local]
    assert framework.get_variables_to_restore(exclude=["c"]) == [w, b]
    assert framework.filter_variables([w, b, other], ["w"], ["^c"]) == [w]
    assert framework.get_unique_variable("c/w") is other
    assert b.device == "/device:CPU:0"
    with pytest.raises(InvalidSetting, match="found 0 variables"):
        framework.get_unique_variable("w")


def test_variables_are_restored_from_checkpoints_and_arrays(tmp_path: Path) -> None:
    w = v1.get_variable("w", initializer=[1.0, 2.0])
    path = str(tmp_path / "model")
    with v1.Session() as session:
        session.run(w.initializer)
        v1.train.Saver([w]).save(session, path)
    missing = v1.get_variable("missing", initializer=0.0)
    restore = framework.assign_from_checkpoint_fn(path, [w, missing], ignore_missing_vars=True)
    assert restore is not None
    assert framework.assign_from_checkpoint_fn(path, [missing], ignore_missing_vars=True) is None
    assign, feeds = framework.assign_from_checkpoint(path, {"w": w})
    with v1.Session() as session:
        framework.assign_from_values_fn({"w": np.zeros(2)})(session)
        assert session.run(w).tolist() == [0, 0]
        restore(session)
        assert session.run(w).tolist() == [1, 2]
        framework.assign_from_values_fn({"w": np.zeros(2)})(session)
        session.run(assign, feeds)
        assert session.run(w).tolist() == [1, 2]
    assert framework.list_variables(path) == [("w", [2])]
    assert framework.load_variable(path, "w").tolist() == [1, 2]
    with pytest.raises(CheckpointMismatch, match="The checkpoint has no missing"):
        framework.assign_from_checkpoint(path, [missing])


@pytest.mark.numeric
def test_a_train_op_clips_and_counts() -> None:
    w = v1.get_variable("w", initializer=[3.0, 4.0])
    loss = tf.reduce_sum(w * [3.0, 4.0])
    train = training.create_train_op(
        loss,
        v1.train.GradientDescentOptimizer(0.5),
        transform_grads_fn=training.clip_gradient_norms_fn(1.0),
        summarize_gradients=True,
    )
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        assert session.run(train) == 25.0
        np.testing.assert_allclose(session.run(w), [2.7, 3.6], rtol=1e-6)
        assert session.run(v1.train.get_global_step()) == 1


def test_a_predictor_maps_arrays_to_arrays(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path / "model")
    estimator.train(programs.ones(), max_steps=2)
    receiver = build_raw_serving_input_receiver_fn({"x": v1.placeholder(tf.float32, [None, 1])})
    model = predictor.from_estimator(estimator, receiver)
    assert model({"x": [[2.0]]})["y"].tolist() == [[1.5]]
    assert (list(model.feed_tensors), list(model.fetch_tensors)) == (["x"], ["y"])
    path = estimator.export_saved_model(str(tmp_path / "export"), receiver).decode()
    assert predictor.from_saved_model(path)({"x": [[4.0]]})["y"].tolist() == [[3.0]]
    with pytest.raises(InvalidSetting, match="no input 'z'. Its inputs are x"):
        model({"z": [[2.0]]})
    with pytest.raises(SignatureNotFound, match="Set signature_def_key to one of serving_default"):
        predictor.from_saved_model(path, "other")


@pytest.mark.numeric
def test_correlation_accumulates_over_batches() -> None:
    x, y = (v1.placeholder(tf.float32, [None]) for _ in range(2))
    value, update = metrics.streaming_pearson_correlation(x, y)
    covariance, other = metrics.streaming_covariance(x, y)
    with v1.Session() as session:
        session.run(v1.local_variables_initializer())
        for batch in ([1, 2], [3]):
            session.run([update, other], {x: batch, y: [2.0 * number * number for number in batch]})
        results = session.run([value, covariance])
    # The sums of products of deviations for x = 1, 2, 3 and y = 2, 8, 18: Sxy = 16, Sxx = 2, Syy =
    # 392/3.
    np.testing.assert_allclose(results, [16 / math.sqrt(2 * 392 / 3), 8.0], rtol=1e-6)


@pytest.mark.numeric
@pytest.mark.parametrize("weights", [[[1.0, 1.0], [0.0, 0.0]], [[1.0], [0.0]]])
def test_weights_of_a_covariance_broadcast_to_the_predictions(weights: list[list[float]]) -> None:
    x, y = tf.constant([[1.0, 3.0], [5.0, 7.0]]), tf.constant([[2.0, 8.0], [0.0, 0.0]])
    # The weights leave only the first row: (1 - 2)(2 - 5) + (3 - 2)(8 - 5) = 6.
    assert _run_fetches(metrics.streaming_covariance(x, y, weights)[1]) == 6


@pytest.mark.numeric
def test_metrics_and_losses_take_predictions_first() -> None:
    value, update = metrics.streaming_precision(tf.constant([1, 1]), tf.constant([1, 0]))
    values, updates = metrics.aggregate_metric_map({"precision": (value, update)})
    assert _run_fetches(updates) == {"precision": 0.5}
    assert list(values) == ["precision"]
    assert _run_fetches(metrics.accuracy(tf.constant([1, 2]), tf.constant([1, 0]))) == 0.5
    even = tf.zeros([1, 2])
    values_of_losses = [
        losses.softmax_cross_entropy(even, tf.constant([[0.0, 1.0]])),
        losses.sparse_softmax_cross_entropy(even, tf.constant([1])),
        losses.mean_squared_error(tf.constant([3.0]), tf.constant([1.0])),
    ]
    np.testing.assert_allclose(
        _run_fetches(values_of_losses), [math.log(2), math.log(2), 4.0], rtol=1e-6
    )


@pytest.mark.numeric
def test_the_loss_of_a_sequence_leaves_padding_out() -> None:
    logits = tf.constant([[[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [9.0, -9.0]]])
    weights = tf.constant([[1.0, 1.0], [1.0, 0.0]])
    targets = tf.ones([2, 2], tf.int32)
    mean_loss = seq2seq.sequence_loss(logits, targets, weights)
    by_step = seq2seq.sequence_loss(logits, targets, weights, average_across_timesteps=False)
    whole, steps = _run_fetches([mean_loss, by_step])
    np.testing.assert_allclose([whole, *steps], [math.log(2)] * 3, rtol=1e-5)


def test_images_are_rotated_and_translated() -> None:
    picture = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    rotation = image.angles_to_projective_transforms(math.pi / 2, 2, 2)
    half_turn = image.compose_transforms(rotation, rotation)
    images = _run_fetches(
        [
            image.rotate(picture, math.pi / 2),
            image.translate(picture[None, :, :, None], [1, 0])[0, :, :, 0],
            image.transform(picture, half_turn[0]),
            image.transform(picture[:, :, None], [1, 0, 0, 0, 1, 0, 0, 0], output_shape=[1, 2]),
        ]
    )
    assert images[0].tolist() == [[2, 4], [1, 3]]
    assert images[1].tolist() == [[0, 1], [0, 3]]
    assert images[2].tolist() == [[4, 3], [2, 1]]
    assert images[3].ravel().tolist() == [1, 2]


def test_parameters_and_operations_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    w = v1.get_variable("w", [3, 2])
    tf.matmul(tf.ones([5, 3]), w)
    analyzer = tfprof.model_analyzer
    graph = v1.get_default_graph()
    analysis = analyzer.print_model_analysis(
        graph, tfprof_options=analyzer.TRAINABLE_VARS_PARAMS_STAT_OPTIONS
    )
    assert analysis.total_parameters == 6
    assert analyzer.print_model_analysis(graph).total_float_ops >= 2 * 5 * 3 * 2


def test_functions_of_eager_are_tensorflows() -> None:
    with context.eager_mode():
        (slope,) = eager.gradients_function(lambda x: x * x)(tf.constant(3.0))
        assert float(slope) == 6.0
        assert float(eager.defun(lambda x: x + 1)(tf.constant(1.0))) == 2.0
