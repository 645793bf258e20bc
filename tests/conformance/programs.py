"""Small models of different kinds, as TPUEstimator programs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
from trainer.demo import mnist

v1 = tf.compat.v1
ROWS = 4


@dataclass(frozen=True)
class Program:
    """A program, and inputs to ask it with."""

    name: str
    model_fn: Callable[..., Any]
    inputs: dict[str, np.ndarray]
    classes: int

    def input_fn(self) -> Any:
        """The inputs, over and over, each row of a class of its own."""
        labels = np.arange(ROWS, dtype=np.int32) % self.classes
        return tf.data.Dataset.from_tensors((self.inputs, labels)).repeat()

    def receiver_fn(self) -> trainer.ServingInputReceiver:
        """Takes the features themselves, with an open batch."""
        placeholders = {
            name: v1.placeholder(each.dtype, [None, *each.shape[1:]], name=name)
            for name, each in self.inputs.items()
        }
        return trainer.ServingInputReceiver(placeholders, placeholders)


def _classifier(network: Callable[[Any, bool], Any]) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        logits = network(features, mode == trainer.ModeKeys.TRAIN)
        if mode == trainer.ModeKeys.PREDICT:
            predictions = {"class": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
            return trainer.TPUEstimatorSpec(mode, predictions=predictions)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = trainer.CrossShardOptimizer(v1.train.AdamOptimizer(0.01))
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def _mnist_model_fn(features: Any, labels: Any, mode: str) -> Any:
    return mnist.model_fn(features, labels, mode, {"learning_rate": 0.05})


def _residual(features: Any, training: bool) -> Any:
    """A batch-norm residual block."""
    x = v1.layers.conv2d(features["image"], 8, 3, padding="same")
    y = tf.nn.relu(v1.layers.batch_normalization(x, training=training))
    y = v1.layers.batch_normalization(v1.layers.conv2d(y, 8, 3, padding="same"), training=training)
    return v1.layers.dense(tf.reduce_mean(tf.nn.relu(x + y), [1, 2]), 3)


def _embedding(features: Any, training: bool) -> Any:
    """Token ids through an embedding table, beside a dense feature."""
    table = v1.get_variable("table", [50, 6])
    words = tf.reduce_mean(tf.gather(table, features["ids"]), axis=1)
    return v1.layers.dense(tf.concat([words, features["x"]], axis=1), 2)


_random = np.random.default_rng(0)

ALL = [
    Program(
        "mnist_cnn",
        _mnist_model_fn,
        {"image": _random.random([ROWS, 784], np.float32)},
        classes=10,
    ),
    Program(
        "residual_block",
        _classifier(_residual),
        {"image": _random.random([ROWS, 8, 8, 3], np.float32)},
        classes=3,
    ),
    Program(
        "embedding_and_dense",
        _classifier(_embedding),
        {
            "ids": _random.integers(0, 50, [ROWS, 5], np.int32),
            "x": _random.random([ROWS, 2], np.float32),
        },
        classes=2,
    ),
]
