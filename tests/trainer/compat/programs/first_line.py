import trainer.compat

# The rest is an unchanged old program, which fits a line to points and serves the model.
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import predictor
from tensorflow.contrib import tpu as contrib_tpu
from tensorflow.contrib.tpu.python.tpu import tpu_config
from tensorflow.contrib.tpu.python.tpu import tpu_estimator
from tensorflow.contrib.tpu.python.tpu import tpu_optimizer
from tensorflow.python.estimator import estimator as estimator_lib
from tensorflow.python.training import basic_session_run_hooks

SLOPE, OFFSET = 3.0, -1.0


def model_fn(features, labels, mode, params):
    x = features["x"]
    slope = tf.get_variable("slope", shape=[], initializer=tf.zeros_initializer())
    offset = tf.get_variable("offset", shape=[], initializer=tf.zeros_initializer())
    y = slope * x + offset
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tpu_estimator.TPUEstimatorSpec(
            mode,
            predictions={"y": y},
            export_outputs={"serving_default": tf.estimator.export.PredictOutput({"y": y})},
        )
    loss = tf.losses.mean_squared_error(labels, y)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tpu_estimator.TPUEstimatorSpec(
            mode,
            loss=loss,
            eval_metrics=(
                lambda labels, y: {"error": tf.metrics.mean_absolute_error(labels, y)},
                [labels, y],
            ),
        )
    optimizer = tf.train.GradientDescentOptimizer(
        tf.train.exponential_decay(0.3, tf.train.get_global_step(), 50, 0.5)
    )
    if params["use_tpu"] or FLAGS.use_tpu:
        optimizer = tpu_optimizer.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params):
    x = np.linspace(-1, 1, 64).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(({"x": x}, SLOPE * x + OFFSET))
    dataset = dataset.repeat().batch(params["batch_size"], drop_remainder=True)
    return dataset


def run(use_tpu):
    FLAGS.use_tpu = use_tpu
    model_dir = "%s/%s" % (FLAGS.model_dir, "tpu" if use_tpu else "cpu")
    config = tpu_config.RunConfig(
        model_dir=model_dir, tpu_config=tpu_config.TPUConfig(20, num_shards=8)
    )
    estimator = contrib_tpu.TPUEstimator(
        model_fn=model_fn,
        config=config,
        use_tpu=use_tpu,
        train_batch_size=64,
        eval_batch_size=64,
        params={},
    )
    assert isinstance(estimator, estimator_lib.Estimator)
    counter = basic_session_run_hooks.StepCounterHook(every_n_steps=20, output_dir=model_dir)
    estimator.train(input_fn, max_steps=100, hooks=[counter])
    error = estimator.evaluate(input_fn, steps=1)["error"]

    features = {"x": tf.placeholder(tf.float32, [None])}
    exported = estimator.export_savedmodel(
        model_dir, tf.estimator.export.build_raw_serving_input_receiver_fn(features)
    )
    served = predictor.from_saved_model(exported.decode())({"x": [0.0, 2.0]})["y"]
    print("use_tpu=%s error %.3f served %.2f %.2f" % (use_tpu, error, served[0], served[1]))


def main(argv):
    assert argv[0] == sys.argv[0]
    run(use_tpu=False)
    run(use_tpu=True)


if __name__ == "__main__":
    FLAGS = tf.app.flags.FLAGS
    tf.app.flags.DEFINE_bool("use_tpu", False, "")
    tf.app.flags.DEFINE_string("model_dir", None, "")
    tf.logging.set_verbosity(tf.logging.WARN)
    tf.app.run()
