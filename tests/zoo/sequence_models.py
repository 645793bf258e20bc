"""Small sequence models: BERT, an encoder-decoder with a decoding loop, GRU and LSTM."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.zoo.zoo_model import Inputs, ZooModel

_TOKENS = 100
_LENGTH = 16
_WIDTH = 32
_HEADS = 4
_DECODED = 8


def _attention(queries: Any, values: Any, name: str, **options: Any) -> Any:
    layer = keras.layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS, name=name)
    return keras.layers.LayerNormalization()(queries + layer(queries, values, **options))


def _feed_forward(x: Any) -> Any:
    hidden = keras.layers.Dense(4 * _WIDTH, activation="gelu")(x)
    return keras.layers.LayerNormalization()(x + keras.layers.Dense(_WIDTH)(hidden))


def _embedding(tokens: Any) -> Any:
    positions = keras.layers.Embedding(_LENGTH, _WIDTH)(np.arange(_LENGTH)[None])
    return keras.layers.Embedding(_TOKENS, _WIDTH)(tokens) + positions


def _write_bert(directory: Path) -> None:
    keras.utils.set_random_seed(0)
    tokens = keras.Input((_LENGTH,), dtype="int32", name="input_word_ids")
    mask = keras.Input((_LENGTH,), dtype="int32", name="input_mask")
    segments = keras.Input((_LENGTH,), dtype="int32", name="input_type_ids")
    x = _embedding(tokens) + keras.layers.Embedding(2, _WIDTH)(segments)
    for index in range(2):
        x = _attention(x, x, f"attention_{index}", attention_mask=mask[:, None, :] > 0)
        x = _feed_forward(x)
    pooled = keras.layers.Dense(_WIDTH, activation="tanh", name="pooled_output")(x[:, 0])
    keras.Model([tokens, mask, segments], [pooled, x]).export(str(directory), verbose=False)


def _bert_inputs(rows: int) -> Inputs:
    random = np.random.default_rng(rows)
    lengths = random.integers(1, _LENGTH + 1, [rows, 1])
    return {
        "input_word_ids": random.integers(0, _TOKENS, [rows, _LENGTH], np.int32),
        "input_mask": (np.arange(_LENGTH) < lengths).astype(np.int32),
        "input_type_ids": random.integers(0, 2, [rows, _LENGTH], np.int32),
    }


class _EncoderDecoder:
    """An encoder, and a decoder that appends its likeliest token to its input in each step."""

    def __init__(self) -> None:
        keras.utils.set_random_seed(0)
        tokens = keras.Input((_LENGTH,), dtype="int32")
        encoded = _embedding(tokens)
        encoded = _feed_forward(_attention(encoded, encoded, "self_attention"))
        self.encoder = keras.Model(tokens, encoded)
        memory = keras.Input((_LENGTH, _WIDTH))
        previous = keras.Input((_DECODED,), dtype="int32")
        x = keras.layers.Embedding(_TOKENS, _WIDTH)(previous)
        x = _attention(x, x, "causal_attention", use_causal_mask=True)
        x = _feed_forward(_attention(x, memory, "cross_attention"))
        self.decoder = keras.Model([memory, previous], keras.layers.Dense(_TOKENS)(x))

    def decode(self, tokens: Any) -> dict[str, Any]:
        """Return the decoded tokens, int32 [rows, 8], and the logits of the last, [rows, 100]."""
        memory = self.encoder(tokens)
        rows = tf.shape(tokens)[0]

        def step(index: Any, decoded: Any, _: Any) -> tuple[Any, Any, Any]:
            logits = tf.gather(self.decoder([memory, decoded]), index, axis=1)
            token = tf.argmax(logits, -1, tf.int32)[:, None]
            place = tf.range(_DECODED)[None] == index + 1
            return index + 1, tf.where(place, token, decoded), logits

        first = tf.zeros([rows, _DECODED], tf.int32), tf.zeros([rows, _TOKENS])
        _, decoded, logits = tf.while_loop(
            lambda index, *_: index < _DECODED, step, (tf.constant(0), *first)
        )
        return {"tokens": decoded, "logits": logits}


def _write_encoder_decoder(directory: Path) -> None:
    model = _EncoderDecoder()
    archive = keras.export.ExportArchive()
    archive.track(model.encoder)
    archive.track(model.decoder)
    tokens = tf.TensorSpec([None, _LENGTH], tf.int32, name="tokens")
    archive.add_endpoint("serve", model.decode, input_signature=[tokens])
    archive.write_out(str(directory), verbose=False)


def _tokens(rows: int) -> Inputs:
    random = np.random.default_rng(rows)
    return {"tokens": random.integers(0, _TOKENS, [rows, _LENGTH], np.int32)}


def _write_recurrent(layer: Any, directory: Path) -> None:
    keras.utils.set_random_seed(0)
    tokens = keras.Input((_LENGTH,), dtype="int32", name="tokens")
    # Token 0 pads a sequence to the length of the batch, and is masked.
    embedded = keras.layers.Embedding(_TOKENS, _WIDTH, mask_zero=True)(tokens)
    state = keras.layers.Bidirectional(layer(_WIDTH))(embedded)
    # Large weights bring the outputs, which are computed from small states, to a size of about 1.
    large = keras.initializers.RandomNormal(stddev=10.0)
    outputs = keras.layers.Dense(4, kernel_initializer=large)(state)
    keras.Model(tokens, outputs).export(str(directory), verbose=False)


def _padded_tokens(rows: int) -> Inputs:
    random = np.random.default_rng(rows)
    lengths = random.integers(1, _LENGTH + 1, [rows, 1])
    tokens = random.integers(1, _TOKENS, [rows, _LENGTH], np.int32)
    return {"tokens": np.where(np.arange(_LENGTH) < lengths, tokens, 0).astype(np.int32)}


GRU = ZooModel(
    "GRU, sequences of different lengths",
    "Keras 3, `model.export`",
    lambda directory: _write_recurrent(keras.layers.GRU, directory),
    _padded_tokens,
)

ALL = (
    ZooModel("BERT", "Keras 3, `model.export`", _write_bert, _bert_inputs),
    ZooModel(
        "encoder-decoder, greedy decoding",
        "Keras 3, `ExportArchive`",
        _write_encoder_decoder,
        _tokens,
    ),
    GRU,
    ZooModel(
        "LSTM, sequences of different lengths",
        "Keras 3, `model.export`",
        lambda directory: _write_recurrent(keras.layers.LSTM, directory),
        _padded_tokens,
    ),
)
