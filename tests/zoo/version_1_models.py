"""Recurrent models of TensorFlow 1: `dynamic_rnn` encoders, and decoders that loop over steps.

Each is saved with either control flow: Enter, Switch and Merge with TensorArrays, and While and If
with TensorLists.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.zoo.zoo_model import Inputs, ZooModel

v1 = tf.compat.v1

_TOKENS = 50
_WIDTH = 16
_LENGTH = 12
_DECODED = 6
_START, _END = 1, 2


def _variable(name: str, *shape: int) -> Any:
    return v1.get_variable(name, shape, initializer=v1.random_normal_initializer(0.0, 0.4))


class _Gru:
    """A gated recurrent unit with the interface of TensorFlow 1's cells."""

    state_size = output_size = _WIDTH

    def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
        with v1.variable_scope(scope or "gru", reuse=v1.AUTO_REUSE):
            size = int(inputs.shape[-1]) + _WIDTH
            gates = tf.sigmoid(tf.concat([inputs, state], 1) @ _variable("gates", size, 2 * _WIDTH))
            reset, update = tf.split(gates, 2, 1)
            kernel = _variable("candidate", size, _WIDTH)
            candidate = tf.tanh(tf.concat([inputs, reset * state], 1) @ kernel)
            state = update * state + (1.0 - update) * candidate
        return state, state

    def zero_state(self, rows: Any, dtype: Any) -> Any:
        return tf.zeros([rows, _WIDTH], dtype)


def _attend(query: Any, memory: Any, mask: Any) -> Any:
    """Return the mean of the encoder's outputs, weighted by Bahdanau's scores: [rows, width]."""
    keys = tf.tensordot(memory, _variable("memory_layer", _WIDTH, _WIDTH), 1)
    hidden = tf.tanh(keys + (query @ _variable("query_layer", _WIDTH, _WIDTH))[:, None])
    scores = tf.reduce_sum(hidden * _variable("attention_v", _WIDTH), 2)
    weights = tf.nn.softmax(tf.where(mask, scores, tf.fill(tf.shape(scores), -1e9)))
    return tf.reduce_sum(weights[:, :, None] * memory, 1)


def _translate(tokens: Any, *, attention: bool) -> dict[str, Any]:
    """Encode tokens, [rows, steps], and decode at most six; token 0 pads a sequence."""
    embeddings = _variable("embeddings", _TOKENS, _WIDTH)
    mask = tf.not_equal(tokens, 0)
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
    with v1.variable_scope("encoder"):
        memory, final = v1.nn.dynamic_rnn(
            _Gru(), tf.gather(embeddings, tokens), lengths, dtype=tf.float32
        )
    projection = _variable("projection", _WIDTH, _TOKENS)

    def step(index: Any, token: Any, state: Any, ended: Any, written: Any) -> tuple[Any, ...]:
        inputs = tf.gather(embeddings, token)
        with v1.variable_scope("decoder", reuse=v1.AUTO_REUSE):
            if attention:
                inputs = tf.concat([inputs, _attend(state, memory, mask)], 1)
            output, state = _Gru()(inputs, state)
        logits = output @ projection
        token = tf.where(ended, tf.fill(tf.shape(token), _END), tf.argmax(logits, 1, tf.int32))
        ended |= tf.equal(token, _END)
        return index + 1, token, state, ended, written.write(index, logits)

    rows = tf.shape(tokens)[0]
    start = tf.fill([rows], _START), final, tf.zeros([rows], tf.bool)
    array = tf.TensorArray(tf.float32, _DECODED, element_shape=[None, _TOKENS])
    *_, array = tf.while_loop(
        lambda index, token, state, ended, written: (index < _DECODED) & ~tf.reduce_all(ended),
        step,
        (tf.constant(0), *start, array),
    )
    logits = tf.transpose(array.stack(), [1, 0, 2])
    return {"tokens": tf.argmax(logits, 2, tf.int32), "logits": logits}


def _write(attention: bool, version: int) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        if version == 1:
            v1.disable_control_flow_v2()
        try:
            with tf.Graph().as_default(), v1.Session() as session:
                v1.set_random_seed(0)
                tokens = v1.placeholder(tf.int32, [None, None], name="tokens")
                outputs = _translate(tokens, attention=attention)
                session.run(v1.global_variables_initializer())
                v1.saved_model.simple_save(session, str(directory), {"tokens": tokens}, outputs)
        finally:
            v1.enable_control_flow_v2()

    return write


def _sequences(rows: int) -> Inputs:
    random = np.random.default_rng(rows)
    lengths = random.integers(1, _LENGTH + 1, [rows, 1])
    tokens = random.integers(1, _TOKENS, [rows, _LENGTH], np.int32)
    return {"tokens": np.where(np.arange(_LENGTH) < lengths, tokens, 0).astype(np.int32)}


SEQ2SEQ = ZooModel(
    "seq2seq, control flow v1", "TensorFlow 1, `simple_save`", _write(False, 1), _sequences
)

ALL = (
    SEQ2SEQ,
    ZooModel(
        "seq2seq, control flow v2", "TensorFlow 1, `simple_save`", _write(False, 2), _sequences
    ),
    ZooModel(
        "seq2seq with attention, control flow v1",
        "TensorFlow 1, `simple_save`",
        _write(True, 1),
        _sequences,
    ),
    ZooModel(
        "seq2seq with attention, control flow v2",
        "TensorFlow 1, `simple_save`",
        _write(True, 2),
        _sequences,
    ),
)
