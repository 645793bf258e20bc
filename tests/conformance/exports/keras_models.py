"""Two of the conformance models, written in Keras: one in Keras 3, one in tf_keras."""

from typing import Any

import keras
import numpy as np
import tf_keras

from tests.conformance.exports.model import ROWS, TRAINING_STEPS
from tests.conformance.exports.models import LSTM, RESIDUAL


def residual() -> Any:
    """Build and train a residual block with batch normalization in Keras 3."""
    keras.utils.set_random_seed(1)
    image = keras.Input([8, 8, 3], name="image")
    x = keras.layers.Conv2D(8, 3, padding="same")(image)
    y = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))
    y = keras.layers.Conv2D(8, 3, padding="same")(y)
    y = keras.layers.BatchNormalization(momentum=0.9)(y)
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(x + y))
    probabilities = keras.layers.Dense(3, activation="softmax", name="probabilities")(pooled)
    return _train(keras.Model(image, probabilities), keras, RESIDUAL.features["image"], 3)


def lstm() -> Any:
    """Build and train an LSTM in tf_keras."""
    tf_keras.utils.set_random_seed(1)
    series = tf_keras.Input([10, 4], name="series")
    last = tf_keras.layers.LSTM(16)(series)
    probabilities = tf_keras.layers.Dense(2, activation="softmax", name="probabilities")(last)
    return _train(tf_keras.Model(series, probabilities), tf_keras, LSTM.features["series"], 2)


def _train(model: Any, package: Any, features: Any, classes: int) -> Any:
    """Compile and train a classifier on one batch, and return it."""
    model.compile(package.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    labels = np.arange(ROWS) % classes
    model.fit(features, labels, epochs=TRAINING_STEPS, batch_size=ROWS, verbose=0)
    return model
