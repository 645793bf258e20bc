from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import estimator as contrib
from trainer.compat.contrib import learn

v1 = tf.compat.v1

SPARSE = tf.SparseTensor([[0, 0]], [5], [2, 2])


def spec(head: Any, mode: str, logits: Any, labels: Any = None) -> Any:
    step = v1.train.get_or_create_global_step()
    return head.create_estimator_spec(
        features={"x": tf.zeros([2, 1])},
        mode=mode,
        logits=logits,
        labels=labels,
        train_op_fn=lambda loss: v1.assign_add(step, 1),
    )


def test_heads_of_contrib_average_their_loss_over_the_batch() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        labels = tf.constant([[1.0], [3.0]])
        built = spec(contrib.regression_head(), "train", tf.constant([[2.0], [0.0]]), labels)
        assert session.run(built.loss) == 5  # (1 + 9) / 2


def test_a_poisson_head_predicts_the_exponential_of_its_logits() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        head = contrib.poisson_regression_head()
        built = spec(head, "infer", tf.constant([[0.0], [1.0]]))
        predicted = session.run(built.predictions["predictions"])
    np.testing.assert_allclose(predicted, [[1.0], [np.e]], rtol=1e-6)


def two_heads(weights: Any = None) -> Any:
    heads = [contrib.regression_head(name="a"), contrib.regression_head(name="b")]
    return contrib.multi_head(heads, weights)


def test_a_multi_head_trains_on_the_weighted_sum_of_the_losses() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        labels = {"a": tf.constant([[1.0], [1.0]]), "b": tf.constant([[0.0], [2.0]])}
        head = two_heads([2.0, 10.0])
        built = spec(head, "train", tf.zeros([2, 2]), labels)
        assert head.name == "a_b"
        assert session.run(built.loss) == 2 * 1 + 10 * 2


def test_a_multi_head_has_the_signatures_of_each_head() -> None:
    with tf.Graph().as_default():
        logits = {"a": tf.zeros([2, 1]), "b": tf.zeros([2, 1])}
        built = spec(two_heads(), "infer", logits)
    assert {"serving_default", "a", "a/predict", "a/regression", "b"} <= set(built.export_outputs)
    assert set(built.predictions) == {("a", "predictions"), ("b", "predictions")}


def test_a_multi_head_says_what_its_heads_lack() -> None:
    named = contrib.regression_head(name="a")
    with pytest.raises(InvalidSetting, match=r"names \['a', 'a'\]\. Give each"):
        contrib.multi_head([named, named])
    with pytest.raises(InvalidSetting, match=r"names \[None\]\. Give each"):
        contrib.multi_head([contrib.regression_head()])
    with pytest.raises(InvalidSetting, match="2 head_weights for 1 heads"):
        contrib.multi_head([named], [1, 2])
    with tf.Graph().as_default():
        with pytest.raises(InvalidSetting, match=r"its heads have 1 \+ 1 logits. Give 2"):
            spec(two_heads(), "infer", tf.zeros([2, 3]))
        with pytest.raises(InvalidSetting, match="got logits for 'a', and none for 'b'"):
            spec(two_heads(), "infer", {"a": tf.zeros([2, 1])})
        with pytest.raises(InvalidSetting, match="got labels for 'a', and none for 'b'"):
            spec(two_heads(), "train", tf.zeros([2, 2]), {"a": tf.zeros([2, 1])})


def test_a_multi_label_head_takes_an_optimizer_of_tensorflow_1() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", initializer=tf.zeros([2]))
        built = contrib.multi_label_head(2).create_estimator_spec(
            features={},
            mode="train",
            logits=tf.zeros([1, 2]) + weight,
            labels=tf.constant([[1, 0]]),
            optimizer=v1.train.GradientDescentOptimizer(1.0),
        )
        session.run(v1.global_variables_initializer())
        session.run(built.train_op)
        # The gradient is (sigmoid(0) - label) / 2.
        assert session.run(weight).tolist() == [0.25, -0.25]


def test_a_multi_label_head_refuses_a_reduction_that_tensorflow_2_lacks() -> None:
    with pytest.raises(InvalidSetting, match="got loss_reduction='weighted_mean'"):
        contrib.multi_label_head(2, loss_reduction=v1.losses.Reduction.MEAN)


def test_gradients_are_clipped_by_their_global_norm() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("weight", initializer=tf.zeros([2]))
        optimizer = contrib.clip_gradients_by_norm(v1.train.GradientDescentOptimizer(1.0), 10.0)
        step = optimizer.minimize(tf.reduce_sum(weight * [30.0, 40.0]))
        session.run(v1.global_variables_initializer())
        session.run(step)
        np.testing.assert_allclose(session.run(weight), [-6, -8], rtol=1e-6)


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    predictions = {"y": features["x"] * 2}
    return trainer.EstimatorSpec(
        mode,
        predictions,
        tf.constant(0.0),
        v1.assign_add(v1.train.get_global_step(), 1),
        export_outputs={"twice": trainer.PredictOutput(predictions)},
    )


def forwarded(features: Any, **options: Any) -> Any:
    extended = contrib.forward_features(trainer.Estimator(model_fn), **options)
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        return extended.model_fn(features(), None, "infer", extended.config)


def test_features_are_forwarded_to_predictions_and_exports() -> None:
    built = forwarded(lambda: {"x": tf.zeros([2]), "id": tf.zeros([2, 2], tf.int32)}, keys="id")
    assert set(built.predictions) == {"id", "y"}
    assert set(built.export_outputs["twice"].outputs) == {"id", "y"}


def test_a_feature_that_cannot_be_forwarded_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="asks for 'z', and the features are 'x'"):
        forwarded(lambda: {"x": tf.zeros([2])}, keys=["z"])
    with pytest.raises(InvalidSetting, match="would add 'y', which is a prediction already"):
        forwarded(lambda: {"x": tf.zeros([2]), "y": tf.zeros([2])})
    with pytest.raises(InvalidSetting, match="the SparseTensor 's' without a default value"):
        forwarded(lambda: {"x": tf.zeros([2]), "s": SPARSE}, keys="s")


def test_features_without_names_are_not_forwarded() -> None:
    def tensor_model_fn(features: Any, mode: str) -> Any:
        return trainer.EstimatorSpec(mode, {"y": features})

    extended = contrib.forward_features(trainer.Estimator(tensor_model_fn))
    with tf.Graph().as_default(), pytest.raises(InvalidSetting, match="which have no names"):
        extended.model_fn(tf.zeros([2]), None, "infer", extended.config)


def test_the_modes_of_contrib_learn_include_inference() -> None:
    assert learn.ModeKeys.INFER == trainer.ModeKeys.PREDICT


def test_one_device_needs_no_replicas_of_model_fn() -> None:
    assert contrib.replicate_model_fn(model_fn) is model_fn
    optimizer = v1.train.GradientDescentOptimizer(1.0)
    assert contrib.TowerOptimizer(lambda: optimizer) is optimizer
    with pytest.raises(InvalidSetting, match="on 2 devices in one graph"):
        contrib.replicate_model_fn(model_fn, devices=["/gpu:0", "/gpu:1"])


@pytest.mark.slow
def test_a_recurrent_estimator_takes_the_arguments_of_contrib() -> None:
    column = tf.feature_column.sequence_numeric_column("x")
    head = contrib.binary_classification_head()
    estimator = contrib.RNNEstimator(head, [column], num_units=4, cell_type="basic_rnn")

    def input_fn() -> Any:
        features = {"x": tf.sparse.from_dense([[1.0, 2.0], [3.0, 0.0]])}
        return tf.data.Dataset.from_tensors((features, [[0], [1]]))

    estimator.train(input_fn, steps=1)
    assert "rnn_model/rnn/simple_rnn_cell/kernel" in estimator.get_variable_names()
    with pytest.raises(InvalidSetting, match=r"cell_type is 'rnn'\. Give one of basic_rnn, gru"):
        contrib.RNNClassifier([column], num_units=4, cell_type="rnn")


def test_a_recurrent_classifier_takes_a_reduction_of_tensorflow_1() -> None:
    column = tf.feature_column.sequence_numeric_column("x")
    reduction = v1.losses.Reduction.SUM_OVER_BATCH_SIZE
    contrib.RNNClassifier([column], num_units=4, loss_reduction=reduction)


@pytest.mark.slow
def test_a_classifier_of_contrib_learn_fits_and_predicts_classes(tmp_path: Path) -> None:
    classifier = learn.LinearClassifier(
        [tf.feature_column.numeric_column("x")],
        str(tmp_path),
        weight_column_name="w",
        label_keys=["no", "yes"],
    )

    def input_fn() -> Any:
        features = {"x": [[-1.0], [1.0]], "w": [[1.0], [1.0]]}
        return tf.data.Dataset.from_tensors((features, [["no"], ["yes"]])).repeat(50)

    assert classifier.fit(input_fn=input_fn, steps=50) is classifier
    rows = tf.data.Dataset.from_tensors
    classes = classifier.predict_classes(input_fn=lambda: rows({"x": [[-1.0], [1.0]]}))
    assert list(classes) == [b"no", b"yes"]


@pytest.mark.slow
def test_a_regressor_of_contrib_learn_gives_all_its_numbers() -> None:
    regressor = learn.LinearRegressor([tf.feature_column.numeric_column("x")], label_dimension=2)

    def input_fn() -> Any:
        return tf.data.Dataset.from_tensors({"x": [[1.0], [2.0]]})

    scores = regressor.predict_scores(input_fn=input_fn, as_iterable=False)
    assert scores.tolist() == [[0, 0], [0, 0]]


def test_what_contrib_learn_had_and_tf_estimator_lacks_is_named() -> None:
    column = tf.feature_column.numeric_column("x")
    with pytest.raises(InvalidSetting, match=r"LinearClassifier got enable_centered_bias"):
        learn.LinearClassifier([column], enable_centered_bias=True)
    learn.LinearClassifier([column], fix_global_step_increment_bug=True)
    with pytest.raises(InvalidSetting, match=r"fit\(\) of tf.contrib.learn got x, y, and takes no"):
        learn.LinearClassifier([column]).fit(np.zeros([2, 1]), np.zeros([2]))
    with pytest.raises(AttributeError, match=r"tf.contrib.learn.SVM is not supplied"):
        learn.SVM  # noqa: B018
