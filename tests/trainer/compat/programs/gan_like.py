"""Trains a generator against a critic on a TPU, and draws samples on the host."""

from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import os

from absl import flags
import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib import tpu as contrib_tpu
from tensorflow.contrib.tpu.python.ops import tpu_ops
from tensorflow.contrib.tpu.python.tpu import tpu_function
from tensorflow.python.estimator import estimator

FLAGS = flags.FLAGS

flags.DEFINE_string("tpu", None, "The TPU, by its name or grpc:// address.")
flags.DEFINE_string("gcp_project", None, "Its project.")
flags.DEFINE_string("tpu_zone", None, "Its zone.")
flags.DEFINE_string("model_dir", None, "Where checkpoints and samples go.")
flags.DEFINE_boolean("use_tpu", True, "Whether to train on a TPU.")
flags.DEFINE_integer("noise_dim", 4, "Numbers that a picture is made from.")
flags.DEFINE_integer("batch_size", 32, "Pictures of a step.")
flags.DEFINE_integer("train_steps", 8, "Steps in all.")
flags.DEFINE_integer("train_steps_per_eval", 4, "Steps from one evaluation to the next.")
flags.DEFINE_integer("critic_steps", 2, "Steps of the critic in one of the generator.")

SAMPLES = 20


def mean_over_replicas(value):
    replicas = tpu_function.get_tpu_context().number_of_shards
    if not replicas:
        return value
    return tpu_ops.cross_replica_sum(value, [list(range(replicas))]) / replicas


def batch_norm(inputs, is_training):
    with tf.variable_scope("batch_norm"):
        size = [inputs.shape[-1]]
        mean_average = tf.get_variable(
            "mean", size, initializer=tf.zeros_initializer(), trainable=False
        )
        square_average = tf.get_variable(
            "square", size, initializer=tf.ones_initializer(), trainable=False
        )
        mean, square = mean_average, square_average
        if is_training:
            mean = mean_over_replicas(tf.reduce_mean(inputs, [0]))
            square = mean_over_replicas(tf.reduce_mean(tf.square(inputs), [0]))
            for average, value in ((mean_average, mean), (square_average, square)):
                tf.add_to_collection(
                    tf.GraphKeys.UPDATE_OPS, tf.assign(average, 0.9 * average + 0.1 * value)
                )
        return (inputs - mean) * tf.rsqrt(square - tf.square(mean) + 1e-3)


def spectral_norm(kernel):
    """Return the kernel divided by an estimate of its largest singular value (power iteration)."""
    matrix = tf.reshape(kernel, [-1, kernel.shape.as_list()[-1]])
    vector = tf.get_variable(
        "u", [matrix.shape[0], 1], initializer=tf.random_normal_initializer(), trainable=False
    )
    right = tf.math.l2_normalize(tf.matmul(matrix, vector, transpose_a=True))
    left = tf.math.l2_normalize(tf.matmul(matrix, right))
    with tf.control_dependencies([tf.assign(vector, left)]):
        left, right = tf.stop_gradient(left), tf.stop_gradient(right)
    sigma = tf.matmul(tf.matmul(left, matrix, transpose_a=True), right)
    return kernel / tf.reshape(sigma, [])


def critic(images):
    with tf.variable_scope("Critic", reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable(
            "kernel", [3, 3, 1, 8], initializer=contrib_layers.xavier_initializer()
        )
        net = tf.nn.conv2d(images, spectral_norm(kernel), [1, 2, 2, 1], "SAME")
        return tf.layers.dense(tf.layers.flatten(tf.nn.leaky_relu(net)), 1)


def generator(noise, is_training):
    with tf.variable_scope("Generator", reuse=tf.AUTO_REUSE):
        net = contrib_layers.fully_connected(noise, 4 * 4 * 8, activation_fn=None)
        net = tf.nn.relu(batch_norm(net, is_training))
        net = tf.layers.conv2d_transpose(tf.reshape(net, [-1, 4, 4, 8]), 1, 4, 2, "same")
        return tf.tanh(net)


def critic_loss(images, noise):
    fakes = generator(noise, is_training=True)
    share = tf.random_uniform([tf.shape(images)[0], 1, 1, 1])
    between = images + share * (fakes - images)
    gradient = tf.gradients(critic(between), [between])[0]
    slopes = tf.sqrt(1e-4 + tf.reduce_sum(tf.square(gradient), reduction_indices=[1, 2, 3]))
    penalty = tf.reduce_mean(tf.square(slopes - 1.0))
    return tf.reduce_mean(critic(fakes)) - tf.reduce_mean(critic(images)) + penalty


def variables_of(part):
    return [variable for variable in tf.trainable_variables() if variable.name.startswith(part)]


def optimizer(name):
    adam = tf.train.AdamOptimizer(0.002, beta1=0.0, beta2=0.9, name=name)
    return contrib_tpu.CrossShardOptimizer(adam) if FLAGS.use_tpu else adam


def model_fn(features, labels, mode, params):
    del labels
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"images": generator(features["noise"], is_training=False)}
        return contrib_tpu.TPUEstimatorSpec(mode=mode, predictions=predictions)
    if mode == tf.estimator.ModeKeys.EVAL:
        scores = [critic(features["images"]), critic(generator(features["noise"], False))]

        def metric_fn(real, fake):
            return {"real": tf.metrics.mean(real), "made": tf.metrics.mean(fake)}

        loss = -tf.reduce_mean(scores[1])
        return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, scores))

    global_step = tf.train.get_or_create_global_step()
    of_critic, of_generator, updates = optimizer("critic"), optimizer("generator"), []
    parts = [tf.split(features[name], FLAGS.critic_steps) for name in ("images", "noise")]
    for images, noise in zip(*parts):
        with tf.control_dependencies(updates):
            loss = critic_loss(tf.identity(images), noise)
            updates = [of_critic.minimize(loss, var_list=variables_of("Critic"))]
    with tf.control_dependencies(updates):
        generator_loss = -tf.reduce_mean(critic(generator(features["noise"], True)))
    with tf.control_dependencies(updates + tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = of_generator.minimize(generator_loss, var_list=variables_of("Generator"))
    with tf.control_dependencies([step]):
        train_op = tf.assign_add(global_step, 1)

    # This saver replaces the saver that TPUEstimator would create.
    saver = tf.train.Saver(tf.global_variables(), max_to_keep=1)
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    saver_hook = tf.train.CheckpointSaverHook(FLAGS.model_dir, save_steps=4, saver=saver)

    def host_call_fn(global_step, critic_loss, generator_loss):
        writer = tf.contrib.summary.create_file_writer(FLAGS.model_dir)
        with writer.as_default(), tf.contrib.summary.always_record_summaries():
            step = global_step[0]
            tf.contrib.summary.scalar("critic_loss", tf.reduce_mean(critic_loss), step=step)
            tf.contrib.summary.histogram("generator_losses", generator_loss, step=step)
            return tf.contrib.summary.all_summary_ops()

    results = [tf.reshape(tensor, [1]) for tensor in (global_step, loss, generator_loss)]
    return contrib_tpu.TPUEstimatorSpec(
        mode=mode,
        loss=generator_loss,
        train_op=train_op,
        host_call=(host_call_fn, results),
        training_hooks=[saver_hook],
    )


def input_fn(params):
    squares = np.pad(np.ones([64, 4, 4, 1], np.float32), [(0, 0), (2, 2), (2, 2), (0, 0)])
    dataset = tf.data.Dataset.from_tensor_slices(squares).repeat()
    dataset = dataset.batch(params["batch_size"], drop_remainder=True)
    images = dataset.make_one_shot_iterator().get_next()
    noise = tf.random_normal([params["batch_size"], FLAGS.noise_dim])
    return {"images": images, "noise": noise}, None


def noise_input_fn(params):
    noise = np.random.RandomState(0).randn(params["batch_size"], FLAGS.noise_dim)
    dataset = tf.data.Dataset.from_tensors(tf.constant(noise, dtype=tf.float32))
    return {"noise": dataset.make_one_shot_iterator().get_next()}, None


def main(argv):
    del argv
    cluster = tf.contrib.cluster_resolver.TPUClusterResolver(
        tpu=FLAGS.tpu,
        zone=FLAGS.tpu_zone,
        project=FLAGS.gcp_project,
        coordinator_name="coordinator",
    )
    config = contrib_tpu.RunConfig(
        cluster=cluster,
        model_dir=FLAGS.model_dir,
        tf_random_seed=1,
        tpu_config=contrib_tpu.TPUConfig(iterations_per_loop=2),
    )
    trained = contrib_tpu.TPUEstimator(
        model_fn=model_fn,
        use_tpu=FLAGS.use_tpu,
        config=config,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.batch_size,
    )
    on_host = contrib_tpu.TPUEstimator(
        model_fn=model_fn,
        use_tpu=False,
        config=config,
        train_batch_size=FLAGS.batch_size,
        predict_batch_size=SAMPLES,
    )
    tf.gfile.MakeDirs(os.path.join(FLAGS.model_dir, "samples"))
    step = estimator._load_global_step_from_checkpoint_dir(FLAGS.model_dir)
    print("starts at %d" % step)
    while step < FLAGS.train_steps:
        step = min(step + FLAGS.train_steps_per_eval, FLAGS.train_steps)
        trained.train(input_fn=input_fn, max_steps=step)
        metrics = trained.evaluate(input_fn=input_fn, steps=2)
        drawn = [prediction["images"] for prediction in on_host.predict(input_fn=noise_input_fn)]
        with tf.gfile.Open(os.path.join(FLAGS.model_dir, "samples", "%d.txt" % step), "w") as file:
            np.savetxt(file, np.reshape(drawn, [len(drawn), -1]))
        print("step %d: real %.3f made %.3f" % (step, metrics["real"], metrics["made"]))
    print("ends at %d" % estimator._load_global_step_from_checkpoint_dir(FLAGS.model_dir))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run(main)
