import functools
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tpuserve.errors import InvalidSetting

v1 = tf.compat.v1

X = tf.feature_column.numeric_column("x")


def logits(logit_fn: Any, mode: str = "infer") -> Any:
    with tf.Graph().as_default(), v1.Session() as session:
        features = {"x": tf.constant([[1.0], [2.0]])}
        model = trainer.call_logit_fn(logit_fn, features, mode, None, None)
        names = [variable.op.name for variable in v1.trainable_variables()]
        session.run(
            [variable.assign(tf.ones_like(variable)) for variable in v1.trainable_variables()]
        )
        session.run([variable.initializer for variable in v1.global_variables()[len(names) :]])
        return session.run(model).tolist(), names


@pytest.mark.filterwarnings("ignore:`layer.add_variable` is deprecated:UserWarning")
def test_a_linear_model_weighs_its_columns() -> None:
    values, names = logits(trainer.linear_logit_fn_builder(1, [X]))
    assert values == [[2.0], [3.0]]
    assert names == ["linear_model/x/weights", "linear_model/bias_weights"]


def test_a_network_has_hidden_layers_under_the_names_of_checkpoints() -> None:
    logit_fn = trainer.dnn_logit_fn_builder(1, [2], [X], tf.nn.relu, 0.5, None, False)
    values, names = logits(logit_fn)
    # The logit is the sum of two hidden units, each x + 1, and a bias.
    assert values == [[5.0], [7.0]]
    assert names == [
        "hiddenlayer_0/kernel",
        "hiddenlayer_0/bias",
        "logits/kernel",
        "logits/bias",
    ]


def test_a_network_has_shared_embeddings_beside_other_columns() -> None:
    with tf.Graph().as_default():
        ids = [tf.feature_column.categorical_column_with_identity(name, 3) for name in "ab"]
        shared = tf.feature_column.shared_embeddings(ids, 2)
        own = tf.feature_column.embedding_column(ids[0], 2)
        build = trainer.dnn_logit_fn_builder(
            1, [2], [X, own, *shared], tf.nn.relu, None, None, False
        )
        features = {"a": tf.constant([[1]]), "b": tf.constant([[2]]), "x": tf.constant([[1.0]])}
        logits = build(features, "train")
        names = [variable.op.name for variable in v1.trainable_variables()]
    assert logits.shape.as_list() == [1, 1]
    assert names[:2] == [
        "input_from_feature_columns/input_layer/a_embedding/embedding_weights",
        "input_from_feature_columns/a_b_shared_embedding",
    ]


def test_units_are_whole_and_logits_are_tensors() -> None:
    for units in (1.0, True, 0):
        with pytest.raises(InvalidSetting, match=f"units is {units}. Give a whole number"):
            trainer.linear_logit_fn_builder(units, [X])  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="logit_fn should return a Tensor"):
        trainer.call_logit_fn(lambda features: 3, {}, "infer", None, None)


def test_a_logit_fn_keeps_the_arguments_that_are_bound() -> None:
    def logit_fn(features: Any, mode: str, params: float, config: Any = 0.0) -> Any:
        return features["x"] * params + config

    def call(function: Any) -> Any:
        with tf.Graph().as_default(), v1.Session() as session:
            features = {"x": tf.constant([1.0, 2.0])}
            return session.run(trainer.call_logit_fn(function, features, "infer", 1.0, 5.0))

    assert call(functools.partial(logit_fn, params=7.0)).tolist() == [12.0, 19.0]
    assert call(functools.partial(logit_fn, config=0.5)).tolist() == [1.5, 2.5]


def test_a_logit_fn_keeps_the_defaults_of_its_own_settings() -> None:
    def logit_fn(features: Any, *, mode: str, params: float = 3.0) -> Any:
        assert mode == "infer"
        return features["x"] * params

    assert logits(logit_fn)[0] == [[3.0], [6.0]]
