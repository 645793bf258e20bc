"""Trains a tiny transformer to count, with a custom optimizer, and lets it continue counts."""

import argparse
import collections
import functools
import json
import logging
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import tpu
from tensorflow.contrib.cluster_resolver import TPUClusterResolver

PERIOD = 5


class Adafactor(tf.train.Optimizer):
    """Adafactor: stores the second moments of a matrix per row and per column only."""

    def __init__(self, learning_rate, clipping_threshold=1.0, name="Adafactor"):
        super(Adafactor, self).__init__(use_locking=False, name=name)
        self._learning_rate = learning_rate
        self._clipping_threshold = clipping_threshold

    def _create_slots(self, var_list):
        for var in var_list:
            shape = var.get_shape().as_list()
            if len(shape) >= 2:
                self._get_or_make_slot(var, tf.zeros(shape[:-1]), "vr", self._name)
                columns = tf.zeros(shape[:-2] + shape[-1:])
                self._get_or_make_slot(var, columns, "vc", self._name)
            else:
                self._zeros_slot(var, "v", self._name)

    def _resource_apply_sparse(self, grad, handle, indices):
        dense = tf.IndexedSlices(grad, indices, tf.shape(handle))
        return self._resource_apply_dense(tf.convert_to_tensor(dense), handle)

    def _resource_apply_dense(self, grad, var):
        step = tf.to_float(tf.train.get_or_create_global_step())
        decay = 1.0 - tf.pow(step + 1.0, -0.8)
        squared = tf.square(grad) + 1e-30
        scale = self._learning_rate * tf.maximum(tf.sqrt(tf.reduce_mean(tf.square(var))), 1e-3)
        if len(var.get_shape()) >= 2:
            vr, vc = self.get_slot(var, "vr"), self.get_slot(var, "vc")
            rows = decay * vr + (1.0 - decay) * tf.reduce_mean(squared, -1)
            columns = decay * vc + (1.0 - decay) * tf.reduce_mean(squared, -2)
            updates = [tf.assign(vr, rows), tf.assign(vc, columns)]
            factor = tf.rsqrt(rows / tf.reduce_mean(rows, -1, keep_dims=True))
            change = grad * tf.expand_dims(factor, -1) * tf.expand_dims(tf.rsqrt(columns), -2)
        else:
            v = self.get_slot(var, "v")
            moments = decay * v + (1.0 - decay) * squared
            updates = [tf.assign(v, moments)]
            change = grad * tf.rsqrt(moments)
        norm = tf.sqrt(tf.reduce_mean(tf.square(change)))
        change /= tf.maximum(1.0, norm / self._clipping_threshold)
        return tf.group(tf.assign(var, var - scale * change), *updates)


class Accumulating(tf.train.Optimizer):
    """Wraps an optimizer, which applies the mean gradients of `every` steps in the last of them."""

    def __init__(self, optimizer, every):
        super(Accumulating, self).__init__(use_locking=False, name="Accumulating")
        self._optimizer, self._every = optimizer, every

    def compute_gradients(self, loss, var_list=None, **kwargs):
        return self._optimizer.compute_gradients(loss, var_list, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        zeros = {"initializer": tf.zeros_initializer(), "trainable": False}
        sums = [tf.get_variable(var.op.name + "/sum", var.shape, **zeros) for _, var in pairs]
        added = [tf.assign_add(gradient_sum, grad) for gradient_sum, (grad, _) in zip(sums, pairs)]

        def apply():
            means = [tf.identity(gradient_sum) / self._every for gradient_sum in sums]
            applied = self._optimizer.apply_gradients(zip(means, [var for _, var in pairs]))
            with tf.control_dependencies([applied]):
                return tf.group(*[tf.assign(gradient_sum, tf.zeros_like(gradient_sum)) for gradient_sum in sums])

        with tf.control_dependencies(added):
            is_due = tf.equal((global_step + 1) % self._every, 0)
            update = tf.cond(is_due, apply, tf.no_op)
        with tf.control_dependencies([update]):
            return tf.assign_add(global_step, 1, name=name)


def norm(x, scope):
    with tf.variable_scope(scope):
        size = x.shape[-1].value
        scale = tf.get_variable("g", [size], initializer=tf.constant_initializer(1))
        shift = tf.get_variable("b", [size], initializer=tf.constant_initializer(0))
        mean = tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True)
        return (x - mean) * tf.rsqrt(variance + 1e-5) * scale + shift


def attention(x, heads):
    length, size = x.shape.as_list()[1:]

    def split(part):
        return tf.transpose(tf.reshape(part, [-1, length, heads, size // heads]), [0, 2, 1, 3])

    query, key, value = map(split, tf.split(tf.layers.dense(x, 3 * size, name="qkv"), 3, axis=2))
    weights = tf.matmul(query, key, transpose_b=True) * (size // heads) ** -0.5
    mask = tf.matrix_band_part(tf.ones([length, length]), -1, 0)
    weights = tf.nn.softmax(weights * mask - 1e10 * (1 - mask))
    mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
    return tf.layers.dense(tf.reshape(mixed, [-1, length, size]), size, name="out")


def logits_of(tokens, params):
    length, size = tokens.shape.as_list()[1], params["n_embd"]
    initializer = tf.random_normal_initializer(stddev=0.05)
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE, initializer=initializer):
        words = tf.get_variable("wte", [params["n_vocab"], size])
        places = tf.get_variable("wpe", [params["n_ctx"], size])
        h = tf.gather(words, tokens) + places[:length]
        for layer in range(params["n_layer"]):
            with tf.variable_scope("h%d" % layer):
                h += attention(norm(h, "ln_1"), params["n_head"])
                h += tf.layers.dense(
                    tf.nn.relu(tf.layers.dense(norm(h, "ln_2"), 4 * size, name="fc")), size
                )
        h = tf.reshape(norm(h, "ln_f"), [-1, size])
        return tf.reshape(tf.matmul(h, words, transpose_b=True), [-1, length, params["n_vocab"]])


def go_on(context, params):
    start, length = context.shape.as_list()[1], params["n_ctx"]
    tokens = tf.pad(context, [[0, 0], [0, length - start]])

    def body(at, tokens):
        before = tf.one_hot(at - 1, length)
        logits = tf.einsum("blv,l->bv", logits_of(tokens, params), before)
        best = tf.argmax(logits, -1, output_type=tf.int32)
        here = tf.one_hot(at, length, dtype=tf.int32)
        return at + 1, tokens * (1 - here) + best[:, None] * here

    return tf.while_loop(lambda at, _: at < length, body, [start, tokens], back_prop=False)[1]


def model_fn(features, labels, mode, params):
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tpu.TPUEstimatorSpec(mode, predictions={"tokens": go_on(features, params)})
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=logits_of(features, params), labels=labels
    )
    loss = tf.reduce_mean(losses)
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(losses):
            value, update = tf.metrics.mean(losses)
            return {"perplexity": (tf.exp(value), update)}

        return tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, {"losses": losses}))
    # params is a defaultdict: the missing key "lr" gives None, and so the default rate.
    optimizer = Adafactor(params["lr"] or 0.05)
    if params["use_tpu"]:
        optimizer = tpu.CrossShardOptimizer(optimizer)
    train_op = Accumulating(optimizer, params["accumulate"]).minimize(
        loss, global_step=tf.train.get_global_step()
    )
    return tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params, is_train):
    def sample(number):
        first = tf.random_uniform([], 0, PERIOD, tf.int32) if is_train else tf.to_int32(number)
        counted = (first + tf.range(params["n_ctx"] + 1)) % PERIOD
        return counted[:-1], counted[1:]

    dataset = tf.data.Dataset.range(1000).map(sample, num_parallel_calls=2)
    if is_train:
        dataset = dataset.apply(tf.data.experimental.shuffle_and_repeat(buffer_size=100))
    return dataset.batch(params["batch_size"], drop_remainder=True).prefetch(2)


def prompts(params):
    starts = (np.arange(10, dtype=np.int32)[:, None] + np.arange(4, dtype=np.int32)) % PERIOD
    return tf.data.Dataset.from_tensor_slices(starts).batch(params["batch_size"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tpu", type=str)
    parser.add_argument("--params", type=json.loads, required=True)
    args = parser.parse_args()
    params = collections.defaultdict(lambda: None, args.params)
    logging.getLogger("tensorflow").handlers = [logging.StreamHandler(sys.stderr)]
    tf.logging.set_verbosity(tf.logging.INFO)
    network = tpu.TPUEstimator(
        model_fn=model_fn,
        use_tpu=args.tpu is not None,
        config=tpu.RunConfig(
            cluster=TPUClusterResolver(args.tpu) if args.tpu is not None else None,
            model_dir=params["model_path"],
            tpu_config=tpu.TPUConfig(
                iterations_per_loop=20,
                per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
        train_batch_size=16,
        eval_batch_size=8,
        predict_batch_size=8,
        params=params,
    )
    network.train(functools.partial(input_fn, is_train=True), max_steps=60)
    result = network.evaluate(functools.partial(input_fn, is_train=False), steps=2)
    print("perplexity %.3f" % result["perplexity"])
    for result in network.predict(prompts):
        print(" ".join(map(str, result["tokens"])))


if __name__ == "__main__":
    main()
