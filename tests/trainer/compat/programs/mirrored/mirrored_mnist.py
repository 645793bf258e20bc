"""A classifier of small images that trains on the GPUs of a machine, as the official models did."""

import numpy as np
import tensorflow as tf

tf.flags.DEFINE_string("model_dir", None, "")
tf.flags.DEFINE_integer("num_gpus", 0, "")
tf.flags.DEFINE_integer("batch_size", 16, "The batch of all GPUs together.")
tf.flags.DEFINE_integer("train_steps", 8, "")
tf.flags.DEFINE_string("all_reduce_alg", None, "")

FLAGS = tf.flags.FLAGS
LEARNING_RATE = 1e-2


def get_distribution_strategy(num_gpus, all_reduce_alg=None):
    if num_gpus == 0:
        return tf.contrib.distribute.OneDeviceStrategy("device:CPU:0")
    if num_gpus == 1:
        return tf.contrib.distribute.OneDeviceStrategy("device:GPU:0")
    cross_device_ops = None
    if all_reduce_alg:
        cross_device_ops = tf.contrib.distribute.AllReduceCrossDeviceOps(
            all_reduce_alg, num_packs=num_gpus
        )
    return tf.contrib.distribute.MirroredStrategy(
        num_gpus=num_gpus, cross_device_ops=cross_device_ops
    )


def per_device_batch_size(batch_size, num_gpus):
    return batch_size // max(num_gpus, 1)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN

    def start(seed):
        return tf.glorot_uniform_initializer(seed)

    image = tf.reshape(features, [-1, 8, 8, 1])
    x = tf.layers.conv2d(image, 4, 3, activation=tf.nn.tanh, kernel_initializer=start(1))
    x = tf.layers.batch_normalization(x, momentum=0.9, training=training)
    x = tf.layers.dense(tf.layers.flatten(x), 8, tf.nn.tanh, kernel_initializer=start(2))
    logits = tf.layers.dense(x, 4, kernel_initializer=start(3))
    classes = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"classes": classes})
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.metrics.accuracy(labels=labels, predictions=classes)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.train.AdamOptimizer(params["learning_rate"], epsilon=1e-3)
    tf.identity(params["learning_rate"], "learning_rate")
    tf.identity(accuracy[1], name="train_accuracy")
    tf.summary.scalar("train_accuracy", accuracy[1])
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def make_images(count):
    """Return images of noise in which the lines of one quarter are bright, and its number."""
    random = np.random.RandomState(0)
    labels = np.arange(count) % 4
    images = random.normal(0, 0.5, [count, 4, 2, 8]).astype(np.float32)
    images[np.arange(count), labels] += 1
    return images.reshape(count, 64), labels.astype(np.int32)


def train_input_fn():
    dataset = tf.data.Dataset.from_tensor_slices(make_images(72))
    batch_size = per_device_batch_size(FLAGS.batch_size, FLAGS.num_gpus)
    return dataset.repeat().batch(batch_size).prefetch(1)


def eval_input_fn():
    return tf.data.Dataset.from_tensor_slices(make_images(72)).batch(FLAGS.batch_size)


def main(_):
    strategy = get_distribution_strategy(FLAGS.num_gpus, FLAGS.all_reduce_alg)
    run_config = tf.estimator.RunConfig(
        train_distribute=strategy,
        session_config=tf.ConfigProto(allow_soft_placement=True),
        save_summary_steps=FLAGS.train_steps,
    )
    classifier = tf.estimator.Estimator(
        model_fn=model_fn,
        model_dir=FLAGS.model_dir,
        config=run_config,
        params={"learning_rate": LEARNING_RATE, "batch_size": FLAGS.batch_size},
    )
    hook = tf.train.LoggingTensorHook(["learning_rate", "train_accuracy"], every_n_iter=4)
    classifier.train(train_input_fn, hooks=[hook], max_steps=FLAGS.train_steps)
    results = classifier.evaluate(eval_input_fn)
    print("%d %.3f" % (results["global_step"], results["accuracy"]))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run()
