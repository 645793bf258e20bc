"""Uses each part of the package tf_slim, and prints what it computes.

The argument is an empty directory.
"""

import importlib
import pkgutil
import sys

import tensorflow.compat.v1 as tf
import tf_slim as slim
from tf_slim import nets
from tf_slim.losses import metric_learning
from tf_slim.metrics import histogram_ops

tf.disable_v2_behavior()
records = sys.argv[1] + "/records"
IMAGE_SIZES = {
    nets.alexnet.alexnet_v2: 224,
    nets.inception.inception_v1: 224,
    nets.inception.inception_v2: 224,
    nets.inception.inception_v3: 299,
    nets.overfeat.overfeat: 231,
    nets.resnet_v1.resnet_v1_50: 64,
    nets.resnet_v2.resnet_v2_50: 64,
    nets.vgg.vgg_16: 224,
}


def import_all():
    for module in pkgutil.walk_packages(slim.__path__, "tf_slim."):
        if not module.name.endswith("_test"):
            importlib.import_module(module.name)


def evaluate(*pairs):
    """Return the values of metrics, each a pair of value and update, after one update."""
    values, updates = zip(*pairs, strict=True)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(updates)
        return [value.tolist() for value in session.run(list(values))]


def compute_losses():
    labels, vectors = tf.constant([0, 0, 1]), tf.constant([[0.0, 0.0], [0.0, 3.0], [4.0, 0.0]])
    losses = [
        slim.losses.mean_squared_error(vectors[1], vectors[2]),
        metric_learning.contrastive_loss(tf.constant([1, 0]), vectors[:2], vectors[1:], margin=6.0),
        metric_learning.triplet_semihard_loss(labels, vectors),
    ]
    with tf.Session() as session:
        return [round(float(loss), 4) for loss in session.run(losses)]


def compute_metrics():
    values = tf.constant([1.0, 2.0, 3.0])
    truths, scores = tf.constant([True, False]), tf.constant([0.9, 0.1])
    return evaluate(
        slim.metrics.streaming_concat(values),
        slim.metrics.streaming_mean(values),
        slim.metrics.streaming_dynamic_auc(tf.cast(truths, tf.int32), scores),
        histogram_ops.auc_using_histogram(truths, scores, [0.0, 1.0]),
    )


def read_with_queues():
    with tf.io.TFRecordWriter(records) as writer:
        for number in range(4):
            example = tf.train.Example()
            example.features.feature["number"].int64_list.value.append(number)
            writer.write(example.SerializeToString())
    decoder = slim.tfexample_decoder.TFExampleDecoder(
        {"number": tf.FixedLenFeature([], tf.int64)},
        {"number": slim.tfexample_decoder.Tensor("number")},
    )
    dataset = slim.dataset.Dataset(records, tf.TFRecordReader, decoder, 4, {"number": "a number"})
    provider = slim.dataset_data_provider.DatasetDataProvider(
        dataset, num_epochs=1, shuffle=False, common_queue_min=1
    )
    (number,) = provider.get(["number"])
    batch = slim.prefetch_queue.prefetch_queue([tf.train.batch([number], 2)]).dequeue()
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        with slim.queues.QueueRunners(session):
            return [session.run(batch).tolist() for _ in range(2)]


def train_a_net():
    net = slim.fully_connected(tf.ones([2, 3]), 1, normalizer_fn=slim.batch_norm)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    train_op = slim.learning.create_train_op(tf.reduce_mean(net), optimizer)
    slim.learning.train(train_op, sys.argv[1], number_of_steps=2, log_every_n_steps=10)
    return tf.train.latest_checkpoint(sys.argv[1]).rpartition("-")[2]


import_all()
for function in (compute_losses, compute_metrics, read_with_queues, train_a_net):
    with tf.Graph().as_default():
        print(function.__name__, function())
for net, size in IMAGE_SIZES.items():
    with tf.Graph().as_default():
        logits, _ = net(tf.zeros([1, size, size, 3]), 5, is_training=False)
        print(net.__name__, logits.shape.as_list())
