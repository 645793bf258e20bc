"""A Keras model that looks up words trains, predicts and is exported off the TPU."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.trainer.keras import models

WORDS = ["a", "b"]


def _by_layer(package: Any, words: Any) -> Any:
    """Return a model whose words are the keys of a layer, with the outputs 10, 1 and 2."""
    text = package.layers.Input((1,), dtype="string", name="word")
    lookup = package.layers.StringLookup(vocabulary=words, output_mode="one_hot")
    if words is None:
        lookup.adapt(tf.constant([["b"], ["a"], ["a"]]))
    outputs = package.layers.Dense(1, use_bias=False, name="y")(lookup(text))
    model = package.Model(text, outputs)
    model.layers[-1].set_weights([np.array([[10.0], [1.0], [2.0]])])
    return model


def _by_column() -> Any:
    """Return a model whose words are a vocabulary column, with the outputs 0, 1 and 2."""
    column = tf.feature_column.categorical_column_with_vocabulary_list("word", WORDS)
    columns = [tf.feature_column.indicator_column(column)]
    text = tf_keras.layers.Input((1,), dtype="string", name="word")
    features = tf_keras.layers.DenseFeatures(columns)({"word": text})
    outputs = tf_keras.layers.Dense(1, use_bias=False, name="y")(features)
    model = tf_keras.Model({"word": text}, outputs)
    model.layers[-1].set_weights([np.array([[1.0], [2.0]])])
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("build_model", "unknown"),
    [
        (lambda: _by_layer(keras, WORDS), 10.0),
        (lambda: _by_layer(tf_keras, WORDS), 10.0),
        (lambda: _by_layer(tf_keras, None), 10.0),
        (_by_column, 0.0),
    ],
    ids=["keras", "tf_keras", "adapted", "column"],
)
def test_a_model_with_a_lookup_table_trains_and_is_exported(
    build_model: Any, unknown: float, tmp_path: Path
) -> None:
    model = build_model()
    optimizers = keras.optimizers if isinstance(model, keras.Model) else tf_keras.optimizers
    model.compile(optimizers.SGD(0.25), "mse")
    estimator = models.estimator(model, tmp_path, export_to_tpu=False, predict_batch_size=3)

    def input_fn(params: Any) -> Any:
        rows = ({"word": tf.constant([["a"]])}, tf.constant([[3.0]]))
        return tf.data.Dataset.from_tensors(rows).repeat(2)

    # The gradient is 2 (1 - 3) = -4, so the output of "a" moves from 1 to 2.
    estimator.train(input_fn, steps=1)
    assert estimator.evaluate(input_fn, steps=1)["loss"] == 1.0
    directory = estimator.export_saved_model(str(tmp_path / "export")).decode()
    serve = tf.saved_model.load(directory).signatures["serving_default"]
    outputs = serve(tf.constant([["a"], ["b"], ["c"]]))["y"]
    assert outputs.numpy().tolist() == [[2.0], [2.0], [unknown]]
