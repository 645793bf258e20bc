"""Five models that are small but real."""

import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from tests.conformance.exports.model import ROWS, Features, Model, Network
from trainer.demo import mnist

v1 = tf.compat.v1

WORDS = ["the", "a", "not", "very", "good", "bad", "film", "plot", "was", "loved", "slept", "it"]
_MOST_WORDS = 6
_WIDTH = 32
_HEADS = 4
_TOKENS = 100


class TextClassifier(tf.Module):
    """Two dense layers on the mean of word embeddings; all unknown words share one embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = v1.get_variable("table", [len(WORDS) + 1, 16])
        self.hidden = v1.get_variable("hidden", [16, 16])
        self.output = v1.get_variable("output", [16, 2])

    def __call__(self, features: Features, training: bool = False) -> Any:
        words = tf.reduce_mean(tf.gather(self.table, features["ids"]), axis=1)
        return tf.nn.relu(words @ self.hidden) @ self.output


def vocabulary() -> Any:
    """Return a table of word → ID; unknown words have the last ID."""
    ids = tf.lookup.KeyValueTensorInitializer(WORDS, np.arange(len(WORDS), dtype=np.int64))
    return tf.lookup.StaticVocabularyTable(ids, num_oov_buckets=1)


def ids_of(text: Any, table: Any) -> Any:
    """Return the IDs of the first words of each text, int32 [rows, `_MOST_WORDS`], padded."""
    ids = table.lookup(tf.strings.split(text))
    padded = ids.to_tensor(default_value=len(WORDS), shape=[None, _MOST_WORDS])
    return tf.cast(padded, tf.int32)


def _looked_up(features: Features) -> Features:
    if "ids" in features:
        return features
    return {"ids": ids_of(features["text"], vocabulary())}


class TransformerEncoder(tf.Module):
    """Token and position embeddings, two attention layers, and a dense layer on their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = v1.get_variable("tokens", [_TOKENS, _WIDTH])
        self.positions = v1.get_variable("positions", [12, _WIDTH])
        self.layers = [EncoderLayer(f"layer_{number}") for number in range(2)]
        self.output = v1.get_variable("output", [_WIDTH, 3])

    def __call__(self, features: Features, training: bool = False) -> Any:
        x = tf.gather(self.tokens, features["ids"]) + self.positions
        for layer in self.layers:
            x = layer(x)
        return tf.reduce_mean(x, axis=1) @ self.output


class EncoderLayer(tf.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        with v1.variable_scope(name):
            self.queries_keys_values = v1.get_variable("qkv", [_WIDTH, 3 * _WIDTH])
            self.attention_kernel = v1.get_variable("attended", [_WIDTH, _WIDTH])
            self.widening_kernel = v1.get_variable("widened", [_WIDTH, 4 * _WIDTH])
            self.narrowing_kernel = v1.get_variable("narrowed", [4 * _WIDTH, _WIDTH])
            self.norms = [LayerNorm(f"norm_{number}") for number in range(2)]

    def __call__(self, x: Any) -> Any:
        x = self.norms[0](x + self._attention(x))
        y = tf.nn.gelu(tf.tensordot(x, self.widening_kernel, 1))
        return self.norms[1](x + tf.tensordot(y, self.narrowing_kernel, 1))

    def _attention(self, x: Any) -> Any:
        _, length, _ = x.shape
        split = tf.reshape(
            tf.tensordot(x, self.queries_keys_values, 1), [-1, length, 3, _HEADS, _WIDTH // _HEADS]
        )
        queries, keys, values = tf.unstack(split, axis=2)
        scores = tf.einsum("bqhd,bkhd->bhqk", queries, keys) * (_WIDTH // _HEADS) ** -0.5
        mixed = tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(scores), values)
        return tf.tensordot(tf.reshape(mixed, [-1, length, _WIDTH]), self.attention_kernel, 1)


class LayerNorm(tf.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        with v1.variable_scope(name):
            self.scale = v1.get_variable("scale", [_WIDTH], initializer=v1.ones_initializer())
            self.offset = v1.get_variable("offset", [_WIDTH], initializer=v1.zeros_initializer())

    def __call__(self, x: Any) -> Any:
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6) * self.scale + self.offset


def _residual() -> Network:
    """Return a residual block whose batch normalization puts its updates into UPDATE_OPS."""

    def network(features: Features, training: bool = False) -> Any:
        x = v1.layers.conv2d(features["image"], 8, 3, padding="same")
        y = tf.nn.relu(v1.layers.batch_normalization(x, training=training, momentum=0.9))
        y = v1.layers.conv2d(y, 8, 3, padding="same")
        y = v1.layers.batch_normalization(y, training=training, momentum=0.9)
        return v1.layers.dense(tf.reduce_mean(tf.nn.relu(x + y), [1, 2]), 3)

    return network


def _lstm() -> Network:
    with warnings.catch_warnings():
        # Ignore TensorFlow's warning that advises to use Keras.
        warnings.simplefilter("ignore")
        cell = v1.nn.rnn_cell.BasicLSTMCell(16)
    cell.build(tf.TensorShape([None, 4]))
    output = v1.get_variable("output", [16, 2])

    def network(features: Features, training: bool = False) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs, _ = v1.nn.dynamic_rnn(cell, features["series"], dtype=tf.float32)
        return outputs[:, -1] @ output

    return network


def _mnist_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    return mnist.model_fn(features, labels, mode, params)


def _no_network() -> Network:
    raise AssertionError("this model is its own model_fn")


_random = np.random.default_rng(0)

_TEXTS = [
    "the film was good",
    "the film was very bad",
    "not good",
    "loved it",
    "slept",
    "a plot, not a very good one, it was",
    "das war ein schöner film",
    "",
]

MNIST = Model(
    "MNIST CNN",
    "the model of the demo: two convolutions, two max poolings, two dense layers",
    {"image": _random.random([ROWS, 784], np.float32)},
    classes=10,
    make=_no_network,
    whole=_mnist_model_fn,
)
TEXT = Model(
    "text classifier",
    "a vocabulary lookup on the host; embeddings and two dense layers on the TPU",
    {"text": np.array([text.encode() for text in _TEXTS], object)},
    classes=2,
    make=TextClassifier,
    dense=_looked_up,
)
TRANSFORMER = Model(
    "transformer encoder",
    "token and position embeddings, two layers of attention with four heads, GELU, layer norm",
    {"ids": _random.integers(0, _TOKENS, [ROWS, 12], np.int32)},
    classes=3,
    make=TransformerEncoder,
)
RESIDUAL = Model(
    "residual block",
    "two convolutions, each with batch norm and trained moving averages",
    {"image": _random.random([ROWS, 8, 8, 3], np.float32)},
    classes=3,
    make=_residual,
)
LSTM = Model(
    "LSTM",
    "an LSTM over ten time steps, in a loop",
    {"series": _random.standard_normal([ROWS, 10, 4], np.float32)},
    classes=2,
    make=_lstm,
)

ALL = [MNIST, TEXT, TRANSFORMER, RESIDUAL, LSTM]
