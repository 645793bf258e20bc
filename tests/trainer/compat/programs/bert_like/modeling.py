"""A transformer encoder."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import json
import math

import six
import tensorflow as tf


class EncoderConfig(object):
    """The sizes of the encoder; the defaults are those of a tiny encoder."""

    vocab_size = None
    hidden_size = 16
    num_hidden_layers = 2
    num_attention_heads = 2
    intermediate_size = 32
    dropout_prob = 0.1
    max_position_embeddings = 32
    type_vocab_size = 2
    initializer_range = 0.02

    @classmethod
    def from_json_file(cls, path):
        config = cls()
        with tf.gfile.Open(path, "r") as reader:
            for key, value in six.iteritems(json.load(reader)):
                setattr(config, key, value)
        return config


class Encoder(object):
    """Builds `sequence_output` [batch, length, hidden] and `pooled_output` [batch, hidden]."""

    def __init__(self, config, is_training, input_ids, input_mask, segment_ids, scope=None):
        self._config = config
        self._dropout = config.dropout_prob if is_training else 0.0
        with tf.variable_scope(scope, default_name="bert"):
            with tf.variable_scope("embeddings"):
                hidden = self._embed(input_ids, segment_ids)
            with tf.variable_scope("encoder"):
                # The bias of attention scores: 0 for word pieces, and a large negative number for
                # padding.
                bias = -1e4 * (1.0 - tf.to_float(input_mask[:, tf.newaxis, tf.newaxis, :]))
                for number in range(config.num_hidden_layers):
                    with tf.variable_scope("layer_%d" % number):
                        hidden = self._layer(hidden, bias)
                self.sequence_output = hidden
            with tf.variable_scope("pooler"):
                first = tf.squeeze(hidden[:, 0:1, :], axis=[1])
                self.pooled_output = self._dense(first, config.hidden_size, tf.tanh)

    def _embed(self, input_ids, segment_ids):
        config = self._config
        length = input_ids.shape[1].value
        with tf.control_dependencies(
            [tf.assert_less_equal(length, config.max_position_embeddings)]
        ):
            positions = tf.slice(
                self._table("position_embeddings", config.max_position_embeddings),
                [0, 0],
                [length, -1],
            )
        words = self._table("word_embeddings", config.vocab_size)
        types = self._table("token_type_embeddings", config.type_vocab_size)
        # Multiply by one-hot rows: on a TPU this is faster than a look-up of rows.
        embedded = tf.tensordot(tf.one_hot(input_ids, config.vocab_size), words, axes=1)
        embedded += tf.nn.embedding_lookup(types, segment_ids)
        embedded += tf.expand_dims(positions, 0)
        return self._drop(normalized(embedded))

    def _layer(self, hidden, bias):
        config = self._config
        with tf.variable_scope("attention"):
            attended = self._dense(self._attend(hidden, bias), config.hidden_size)
            attended = normalized(hidden + self._drop(attended))
        with tf.variable_scope("intermediate"):
            wide = self._dense(attended, config.intermediate_size, gelu)
        with tf.variable_scope("output"):
            return normalized(attended + self._drop(self._dense(wide, config.hidden_size)))

    def _attend(self, hidden, bias):
        config = self._config
        length, width = hidden.shape.as_list()[1:]
        size = width // config.num_attention_heads

        def heads(name):
            flat = self._dense(hidden, width, name=name)
            split = tf.reshape(flat, [-1, length, config.num_attention_heads, size])
            return tf.transpose(split, [0, 2, 1, 3])

        with tf.variable_scope("self"):
            scores = tf.matmul(heads("query"), heads("key"), transpose_b=True)
            weights = self._drop(tf.nn.softmax(scores / math.sqrt(size) + bias))
            context = tf.transpose(tf.matmul(weights, heads("value")), [0, 2, 1, 3])
            return tf.reshape(context, [-1, length, width])

    def _table(self, name, rows):
        return tf.get_variable(
            name, [rows, self._config.hidden_size], initializer=self._initializer()
        )

    def _dense(self, inputs, units, activation=None, name=None):
        return tf.layers.dense(
            inputs, units, activation=activation, name=name, kernel_initializer=self._initializer()
        )

    def _initializer(self):
        return tf.truncated_normal_initializer(stddev=self._config.initializer_range)

    def _drop(self, tensor):
        return tf.nn.dropout(tensor, 1.0 - self._dropout) if self._dropout else tensor


def gelu(x):
    return x * 0.5 * (1.0 + tf.erf(x / math.sqrt(2.0)))


def normalized(tensor):
    return tf.contrib.layers.layer_norm(tensor, begin_norm_axis=-1, begin_params_axis=-1)


def variables_in(checkpoint, variables):
    """Return the variables that a checkpoint contains, as checkpoint name → graph name."""
    saved = set(name for name, _ in tf.train.list_variables(checkpoint))
    return dict((variable.op.name, variable.op.name) for variable in variables if variable.op.name in saved)
