"""Tags words by an LSTM in both directions, and counts what is in pictures, from made-up data.

It prints the results of the evaluation. The argument is a directory.
"""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim.nets import resnet_utils
from tensorflow.python.ops import control_flow_ops

hparams = tf.contrib.training.HParams(units=4, rate=None)
hparams.add_hparam("rate", 0.05)


def encode(words):
    steps = tf.transpose(words, [1, 0, 2])
    cell = tf.contrib.rnn.LSTMBlockFusedCell(hparams.units)
    reverse = tf.contrib.rnn.LSTMBlockFusedCell(hparams.units)
    forward, _ = cell(steps, dtype=tf.float32)
    backward, _ = tf.contrib.rnn.TimeReversedFusedRNN(reverse)(steps, dtype=tf.float32)
    return tf.transpose(tf.concat([forward, backward], -1), [1, 0, 2])


def look_at(pictures, is_training):
    with slim.arg_scope(resnet_utils.resnet_arg_scope(batch_norm_decay=0.5)):
        with slim.arg_scope([slim.batch_norm], is_training=is_training):
            net = resnet_utils.conv2d_same(pictures, 2, 3, stride=2, scope="conv")
    return tf.reduce_mean(net, [1, 2])


def model_fn(features, labels, mode, params):
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    words = encode(features["words"])
    picture = look_at(features["pictures"], is_training)
    picture = tf.tile(picture[:, tf.newaxis], [1, words.shape[1].value, 1])
    logits = tf.layers.dense(tf.concat([words, picture], -1), 2)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    rate = control_flow_ops.cond(
        tf.less(tf.train.get_global_step(), 10),
        lambda: tf.constant(hparams.rate),
        lambda: tf.constant(hparams.rate / 2),
    )
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(rate))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        eval_metrics=(
            lambda labels, logits: {
                "accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, -1)),
            },
            [labels, logits],
        ),
    )


def input_fn(params):
    random = np.random.RandomState(0)
    words = random.normal(size=[16, 5, 3]).astype(np.float32)
    tags = (words[..., 0] > 0).astype(np.int32)
    pictures = random.normal(size=[16, 4, 4, 3]).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(({"words": words, "pictures": pictures}, tags))
    return data.repeat().batch(params["batch_size"], drop_remainder=True)


estimator = tf.contrib.tpu.TPUEstimator(
    model_fn,
    config=tf.contrib.tpu.RunConfig(
        model_dir=sys.argv[1], tpu_config=tf.contrib.tpu.TPUConfig(iterations_per_loop=10)
    ),
    use_tpu=len(sys.argv) > 2,
    train_batch_size=16,
    eval_batch_size=16,
)
estimator.train(input_fn, max_steps=40)
results = estimator.evaluate(input_fn, steps=1)
print({name: round(value.item(), 2) for name, value in results.items() if name != "loss"})
