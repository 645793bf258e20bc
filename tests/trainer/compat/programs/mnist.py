"""The example of `TPUEstimator`'s documentation, in its later version.

The import lines, the flags and the last two lines are what the documentation leaves out.
"""

import tensorflow as tf
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer

tf.flags.DEFINE_string("master", "", "")
tf.flags.DEFINE_string("model_dir", None, "")
tf.flags.DEFINE_string("train_file", None, "")
tf.flags.DEFINE_integer("train_steps", 10, "")
tf.flags.DEFINE_integer("batch_size", 64, "")
tf.flags.DEFINE_integer("iterations", 5, "")
tf.flags.DEFINE_integer("dataset_reader_buffer_size", 1 << 20, "")
tf.flags.DEFINE_float("learning_rate", 0.05, "")
tf.flags.DEFINE_bool("use_tpu", False, "")

FLAGS = tf.flags.FLAGS


def model_fn(features, labels, mode, params):
    """A simple CNN."""
    del params  # unused

    input_layer = tf.reshape(features, [-1, 28, 28, 1])
    conv1 = tf.layers.conv2d(
        inputs=input_layer, filters=32, kernel_size=[5, 5], padding="same", activation=tf.nn.relu
    )
    pool1 = tf.layers.max_pooling2d(inputs=conv1, pool_size=[2, 2], strides=2)
    conv2 = tf.layers.conv2d(
        inputs=pool1, filters=64, kernel_size=[5, 5], padding="same", activation=tf.nn.relu
    )
    pool2 = tf.layers.max_pooling2d(inputs=conv2, pool_size=[2, 2], strides=2)
    pool2_flat = tf.reshape(pool2, [-1, 7 * 7 * 64])
    dense = tf.layers.dense(inputs=pool2_flat, units=128, activation=tf.nn.relu)
    dropout = tf.layers.dropout(
        inputs=dense, rate=0.4, training=mode == tf.estimator.ModeKeys.TRAIN
    )
    logits = tf.layers.dense(inputs=dropout, units=10)
    onehot_labels = tf.one_hot(indices=tf.cast(labels, tf.int32), depth=10)

    loss = tf.losses.softmax_cross_entropy(onehot_labels=onehot_labels, logits=logits)

    learning_rate = tf.train.exponential_decay(
        FLAGS.learning_rate, tf.train.get_global_step(), 100000, 0.96
    )

    optimizer = tpu_optimizer.CrossShardOptimizer(
        tf.train.GradientDescentOptimizer(learning_rate=learning_rate)
    )

    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tpu_estimator.TPUEstimatorSpec(mode=mode, loss=loss, train_op=train_op)


def make_input_fn(filename):
    """Returns an `input_fn` for train and eval."""

    def input_fn(params):
        """An input_fn to parse 28x28 images from filename using tf.data."""
        batch_size = params["batch_size"]

        def parser(serialized_example):
            """Parses a single tf.Example into image and label tensors."""
            features = tf.parse_single_example(
                serialized_example,
                features={
                    "image_raw": tf.FixedLenFeature([], tf.string),
                    "label": tf.FixedLenFeature([], tf.int64),
                },
            )
            image = tf.decode_raw(features["image_raw"], tf.uint8)
            image.set_shape([28 * 28])
            # Normalize the values of the image from the range [0, 255] to [-0.5, 0.5]
            image = tf.cast(image, tf.float32) * (1.0 / 255) - 0.5
            label = tf.cast(features["label"], tf.int32)
            return image, label

        dataset = tf.contrib.data.TFRecordDataset(
            filename, buffer_size=FLAGS.dataset_reader_buffer_size
        )
        dataset = dataset.repeat()
        dataset = dataset.apply(
            tf.contrib.data.map_and_batch(
                parser, batch_size=batch_size, num_parallel_batches=8, drop_remainder=True
            )
        )
        return dataset

    return input_fn


def main(unused_argv):

    tf.logging.set_verbosity(tf.logging.INFO)

    run_config = tpu_config.RunConfig(
        master=FLAGS.master,
        model_dir=FLAGS.model_dir,
        session_config=tf.ConfigProto(allow_soft_placement=True, log_device_placement=True),
        tpu_config=tpu_config.TPUConfig(FLAGS.iterations),
    )

    estimator = tpu_estimator.TPUEstimator(
        model_fn=model_fn,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
        config=run_config,
    )

    estimator.train(input_fn=make_input_fn(FLAGS.train_file), max_steps=FLAGS.train_steps)


if __name__ == "__main__":
    tf.app.run()
