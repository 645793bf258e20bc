"""Trains a small residual network on images in TFRecord files, or on made-up ones."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import os
import time

from absl import app
from absl import flags
import tensorflow as tf
from tensorflow.contrib import summary
from tensorflow.contrib.tpu.python.tpu import bfloat16
from tensorflow.contrib.tpu.python.tpu import tpu_config
from tensorflow.contrib.tpu.python.tpu import tpu_estimator
from tensorflow.contrib.tpu.python.tpu import tpu_optimizer
from tensorflow.contrib.training.python.training import evaluation

FLAGS = flags.FLAGS

flags.DEFINE_bool("use_tpu", True, "Whether to use a TPU.")
flags.DEFINE_string("tpu", None, "The TPU, by its name or grpc:// address.")
flags.DEFINE_string("gcp_project", None, "Its project.")
flags.DEFINE_string("tpu_zone", None, "Its zone.")
flags.DEFINE_string("data_dir", "", "Where the files train-* and validation-* are; else made up.")
flags.DEFINE_string("model_dir", None, "Where checkpoints and summaries go.")
flags.DEFINE_enum("mode", "train_and_eval", ["train", "eval", "train_and_eval"], "What to do.")
flags.DEFINE_integer("train_steps", 24, "Steps in all.")
flags.DEFINE_integer("steps_per_eval", 12, "Steps from one evaluation to the next.")
flags.DEFINE_integer("iterations_per_loop", 6, "Steps of a call.")
flags.DEFINE_integer("num_cores", 8, "Cores of the TPU.")
flags.DEFINE_integer("train_batch_size", 32, "Rows of a step.")
flags.DEFINE_integer("eval_batch_size", 16, "Rows of an evaluation's batch.")
flags.DEFINE_integer("num_train_images", 64, "Rows of an epoch.")
flags.DEFINE_integer("num_eval_images", 32, "Rows of the validation files.")
flags.DEFINE_string("data_format", "channels_last", "channels_first or channels_last.")
flags.DEFINE_bool("transpose_input", True, "Whether images come with the batch behind.")
flags.DEFINE_string("precision", "float32", "float32 or bfloat16.")
flags.DEFINE_bool("skip_host_call", False, "Whether to write no summaries while training.")
flags.DEFINE_string("hparams", "", "name=value pairs.")

NUM_CLASSES = 6
IMAGE_SIZE = 8

# (factor of the base rate, epoch from which the factor applies)
LR_SCHEDULE = [(1.0, 2), (0.1, 9), (0.01, 11)]


def default_hparams():
    return tf.contrib.training.HParams(
        base_learning_rate=0.05,
        momentum=0.9,
        weight_decay=1e-4,
        filters=[8, 16],
        label_smoothing=0.05,
        num_train_images=FLAGS.num_train_images,
    )


def learning_rate_schedule(hparams, global_batch_size, current_epoch):
    """Return the learning rate: it rises linearly to the scaled base rate, then falls in steps."""
    scaled = hparams.base_learning_rate * (global_batch_size / 32.0)
    rate = scaled * current_epoch / LR_SCHEDULE[0][1]
    for factor, start_epoch in LR_SCHEDULE:
        rate = tf.where(current_epoch < start_epoch, rate, scaled * factor)
    return rate


class ImageInput(object):
    """An input_fn that reads images and labels from a directory's files, or makes up images."""

    def __init__(self, is_training, data_dir, transpose_input, use_bfloat16):
        self.is_training = is_training
        self.data_dir = data_dir
        self.transpose_input = transpose_input
        self.dtype = tf.bfloat16 if use_bfloat16 else tf.float32

    def parse(self, value):
        keys = {
            "image/encoded": tf.FixedLenFeature((), tf.string, ""),
            "image/class/label": tf.FixedLenFeature([], tf.int64, -1),
        }
        parsed = tf.parse_single_example(value, keys)
        image = tf.image.decode_png(parsed["image/encoded"], channels=3)
        image = tf.image.convert_image_dtype(image, tf.float32)
        image.set_shape([IMAGE_SIZE, IMAGE_SIZE, 3])
        if self.is_training:
            image = tf.image.random_flip_left_right(image)
        label = tf.cast(tf.reshape(parsed["image/class/label"], []), tf.int32)
        return tf.cast(image - 0.5, self.dtype), label

    def read(self, params):
        pattern = os.path.join(self.data_dir, "train-*" if self.is_training else "validation-*")
        dataset = tf.data.Dataset.list_files(pattern, shuffle=self.is_training)
        if self.is_training and "context" in params:
            # Give each host its own share of the files.
            number = params.context.current_input_fn_deployment()[1]
            dataset = dataset.shard(params.context.num_hosts, number)
        if self.is_training:
            dataset = dataset.repeat()

        def fetch(filename):
            return tf.data.TFRecordDataset(filename, buffer_size=8 * 1024)

        dataset = dataset.apply(
            tf.contrib.data.parallel_interleave(fetch, cycle_length=4, sloppy=self.is_training)
        )
        if self.is_training:
            dataset = dataset.shuffle(64)
        return dataset.apply(
            tf.contrib.data.map_and_batch(
                self.parse,
                batch_size=params.batch_size,
                num_parallel_batches=2,
                drop_remainder=True,
            )
        )

    def made_up(self, params):
        def image(number):
            label = tf.cast(number % NUM_CLASSES, tf.int32)
            level = tf.to_float(label) / NUM_CLASSES - 0.5
            return tf.fill([IMAGE_SIZE, IMAGE_SIZE, 3], tf.cast(level, self.dtype)), label

        dataset = tf.data.Dataset.range(FLAGS.num_train_images)
        if self.is_training:
            dataset = dataset.apply(tf.contrib.data.shuffle_and_repeat(64))
        return dataset.map(image).apply(tf.contrib.data.batch_and_drop_remainder(params.batch_size))

    def __call__(self, params):
        dataset = self.read(params) if self.data_dir else self.made_up(params)
        if self.transpose_input:
            # Transpose on the host: images with the batch as last dimension are in the TPU's
            # layout.
            dataset = dataset.map(
                lambda images, labels: (tf.transpose(images, [1, 2, 3, 0]), labels),
                num_parallel_calls=4,
            )
        return dataset.prefetch(tf.contrib.data.AUTOTUNE)


def batch_norm_relu(inputs, is_training, relu=True, init_zero=False):
    outputs = tf.layers.batch_normalization(
        inputs=inputs,
        axis=1 if FLAGS.data_format == "channels_first" else 3,
        momentum=0.9,
        epsilon=1e-5,
        center=True,
        scale=True,
        training=is_training,
        fused=True,
        gamma_initializer=tf.zeros_initializer() if init_zero else tf.ones_initializer(),
    )
    return tf.nn.relu(outputs) if relu else outputs


def conv2d(inputs, filters, kernel_size, strides):
    return tf.layers.conv2d(
        inputs=inputs,
        filters=filters,
        kernel_size=kernel_size,
        strides=strides,
        padding="SAME",
        use_bias=False,
        data_format=FLAGS.data_format,
        kernel_initializer=tf.variance_scaling_initializer(),
    )


def residual_block(inputs, filters, strides, is_training):
    shortcut = inputs
    if strides > 1:
        shortcut = batch_norm_relu(conv2d(inputs, filters, 1, strides), is_training, relu=False)
    outputs = batch_norm_relu(conv2d(inputs, filters, 3, strides), is_training)
    outputs = conv2d(outputs, filters, 3, 1)
    outputs = batch_norm_relu(outputs, is_training, relu=False, init_zero=True)
    return tf.nn.relu(outputs + shortcut)


def network(images, hparams, is_training):
    with tf.variable_scope("resnet"):
        outputs = conv2d(images, hparams.filters[0], 3, 1)
        outputs = batch_norm_relu(outputs, is_training)
        for number, filters in enumerate(hparams.filters):
            with tf.variable_scope("block_%d" % number):
                outputs = residual_block(outputs, filters, 2 if number else 1, is_training)
        axes = [2, 3] if FLAGS.data_format == "channels_first" else [1, 2]
        outputs = tf.reduce_mean(outputs, axes)
        return tf.layers.dense(
            outputs, NUM_CLASSES, kernel_initializer=tf.random_normal_initializer(stddev=0.01)
        )


def resnet_model_fn(features, labels, mode, params):
    if isinstance(features, dict):
        features = features["feature"]
    if FLAGS.transpose_input and mode != tf.estimator.ModeKeys.PREDICT:
        features = tf.transpose(features, [3, 0, 1, 2])
    if FLAGS.data_format == "channels_first":
        features = tf.transpose(features, [0, 3, 1, 2])
    is_training = mode == tf.estimator.ModeKeys.TRAIN

    if FLAGS.precision == "bfloat16":
        with bfloat16.bfloat16_scope():
            logits = network(features, params, is_training)
        logits = tf.cast(logits, tf.float32)
    else:
        logits = network(features, params, is_training)

    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {
            "classes": tf.argmax(logits, axis=1),
            "probabilities": tf.nn.softmax(logits, name="softmax_tensor"),
        }
        return tpu_estimator.TPUEstimatorSpec(
            mode=mode,
            predictions=predictions,
            export_outputs={"classify": tf.estimator.export.PredictOutput(predictions)},
        )

    cross_entropy = tf.losses.softmax_cross_entropy(
        logits=logits,
        onehot_labels=tf.one_hot(labels, NUM_CLASSES),
        label_smoothing=params.label_smoothing,
    )
    loss = cross_entropy + params.weight_decay * tf.add_n(
        [
            tf.nn.l2_loss(variable)
            for variable in tf.trainable_variables()
            if "batch_normalization" not in variable.name
        ]
    )

    host_call = None
    train_op = None
    if is_training:
        global_step = tf.train.get_global_step()
        # Use the global batch size: a core has only its part of the batch.
        batch_size = FLAGS.train_batch_size
        current_epoch = tf.cast(global_step, tf.float32) * batch_size / params.num_train_images
        learning_rate = learning_rate_schedule(params, batch_size, current_epoch)
        optimizer = tf.train.MomentumOptimizer(
            learning_rate=learning_rate, momentum=params.momentum, use_nesterov=True
        )
        if FLAGS.use_tpu:
            optimizer = tpu_optimizer.CrossShardOptimizer(optimizer)
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        with tf.control_dependencies(update_ops):
            train_op = optimizer.minimize(loss, global_step)

        if not FLAGS.skip_host_call:

            def host_call_fn(gs, loss, lr, ce):
                gs = gs[0]
                with summary.create_file_writer(FLAGS.model_dir, max_queue=6).as_default():
                    with summary.always_record_summaries():
                        # Average the loss over all cores, because one core has few rows.
                        summary.scalar("host_loss", tf.reduce_mean(loss), step=gs)
                        summary.scalar("learning_rate", lr[0], step=gs)
                        summary.scalar("current_epoch", ce[0], step=gs)
                        return summary.all_summary_ops()

            host_call = (
                host_call_fn,
                [
                    tf.reshape(tensor, [1])
                    for tensor in (global_step, loss, learning_rate, current_epoch)
                ],
            )

    eval_metrics = None
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(labels, logits):
            predictions = tf.argmax(logits, axis=1)
            in_top_5 = tf.cast(tf.nn.in_top_k(logits, labels, 5), tf.float32)
            return {
                "top_1_accuracy": tf.metrics.accuracy(labels, predictions),
                "top_5_accuracy": tf.metrics.mean(in_top_5),
            }

        eval_metrics = (metric_fn, [labels, logits])

    return tpu_estimator.TPUEstimatorSpec(
        mode=mode, loss=loss, train_op=train_op, host_call=host_call, eval_metrics=eval_metrics
    )


def step_of(checkpoint):
    return int(os.path.basename(checkpoint).split("-")[1])


def train_and_eval(classifier, train_input, eval_input, eval_steps):
    current_step = tf.train.latest_checkpoint(FLAGS.model_dir)
    current_step = step_of(current_step) if current_step else 0
    start = time.time()
    while current_step < FLAGS.train_steps:
        current_step = min(current_step + FLAGS.steps_per_eval, FLAGS.train_steps)
        classifier.train(input_fn=train_input, max_steps=current_step)
        tf.logging.info("Step %d after %d s", current_step, time.time() - start)
        results = classifier.evaluate(input_fn=eval_input, steps=eval_steps)
        tf.logging.info("Eval results: %s", results)


def eval_checkpoints(classifier, eval_input, eval_steps):
    """Evaluate each checkpoint as soon as it is written, until the last one."""
    for checkpoint in evaluation.checkpoints_iterator(FLAGS.model_dir, timeout=60):
        try:
            results = classifier.evaluate(
                input_fn=eval_input, steps=eval_steps, checkpoint_path=checkpoint, name="again"
            )
        except tf.errors.NotFoundError:
            tf.logging.info("%s is gone", checkpoint)
            continue
        print(
            "step %d: top_1 %.4f top_5 %.4f loss %.4f"
            % (
                step_of(checkpoint),
                results["top_1_accuracy"],
                results["top_5_accuracy"],
                results["loss"],
            )
        )
        if step_of(checkpoint) >= FLAGS.train_steps:
            break


def image_serving_input_fn():
    images = tf.placeholder(tf.float32, [None, IMAGE_SIZE, IMAGE_SIZE, 3], name="images")
    return tf.estimator.export.TensorServingInputReceiver(images, images)


def main(unused_argv):
    tf.logging.set_verbosity(tf.logging.INFO)
    hparams = default_hparams()
    hparams.parse(FLAGS.hparams)
    resolver = (
        tf.contrib.cluster_resolver.TPUClusterResolver(
            FLAGS.tpu, zone=FLAGS.tpu_zone, project=FLAGS.gcp_project
        )
        if FLAGS.use_tpu
        else None
    )
    config = tpu_config.RunConfig(
        cluster=resolver,
        model_dir=FLAGS.model_dir,
        tf_random_seed=12,
        save_checkpoints_steps=FLAGS.steps_per_eval,
        log_step_count_steps=FLAGS.iterations_per_loop,
        session_config=tf.ConfigProto(allow_soft_placement=True),
        tpu_config=tpu_config.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=FLAGS.num_cores,
            per_host_input_for_training=tpu_config.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    classifier = tpu_estimator.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=resnet_model_fn,
        config=config,
        params=hparams,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
    )

    train_input, eval_input = [
        ImageInput(
            is_training, FLAGS.data_dir, FLAGS.transpose_input, FLAGS.precision == "bfloat16"
        )
        for is_training in (True, False)
    ]
    eval_steps = FLAGS.num_eval_images // FLAGS.eval_batch_size
    if FLAGS.mode == "train":
        classifier.train(input_fn=train_input, max_steps=FLAGS.train_steps)
    if FLAGS.mode == "train_and_eval":
        train_and_eval(classifier, train_input, eval_input, eval_steps)
    if FLAGS.mode != "train":
        eval_checkpoints(classifier, eval_input, eval_steps)
    classifier.export_saved_model(os.path.join(FLAGS.model_dir, "export"), image_serving_input_fn)


if __name__ == "__main__":
    app.run(main)
