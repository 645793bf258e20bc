"""Monitor training on a TPU with a host_call, with tf.summary and with a logging hook.

    $ python examples/host_call.py
    w = 1.000
    w = 1.625
    step 1: rate 0.5000
    step 2: rate 0.5000
    step 3: rate 0.2500
    step 4: rate 0.2500
    step 2: w 1.0000
    step 4: w 1.6250

A host_call receives the tensors of all cores in every step. The summaries and the logging hook of
model_fn run once per loop of 2 steps, with the values of the last step.
"""

import tempfile
from pathlib import Path

import tensorflow.compat.v1 as tf

import tpuserve
import trainer

summary = tf.compat.v2.summary


def model_fn(features, labels, mode, params):
    step = tf.train.get_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(labels, w * features["x"]) / 2
    rate = tf.train.exponential_decay(0.5, step, 2, 0.5, staircase=True)
    optimizer = trainer.CrossShardOptimizer(tf.train.GradientDescentOptimizer(rate))
    train_op = optimizer.minimize(loss, global_step=step)
    tf.summary.scalar("w", w)
    before = tf.identity(w)
    log = tf.train.LoggingTensorHook(
        {"w": before}, every_n_iter=1, formatter=lambda values: print(f"w = {values['w']:.3f}")
    )

    def host_call(steps, rates):
        # The first dimension holds one value per core, and all values are equal.
        writer = summary.create_file_writer(params["host_call_dir"])
        with writer.as_default(), summary.record_if(True):
            summary.scalar("rate", rates[0], step=steps[0])
            return tf.summary.all_v2_summary_ops()

    tensors = [tf.reshape(step + 1, [1]), tf.reshape(rate, [1])]
    return trainer.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, host_call=(host_call, tensors), training_hooks=[log]
    )


def input_fn(params):
    x = tf.ones([params["batch_size"], 1])
    return tf.data.Dataset.from_tensors(({"x": x}, 2 * x)).repeat()


def print_summaries(tag, directory):
    for path in Path(directory).glob("events.*"):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == tag:
                    number = value.simple_value or float(tf.make_ndarray(value.tensor))
                    print(f"step {event.step}: {tag} {number:.4f}")


def main(directory):
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=2), model_dir=directory, save_summary_steps=2
    )
    params = {"host_call_dir": f"{directory}/host_call"}
    estimator = trainer.TPUEstimator(model_fn, config=config, params=params, train_batch_size=8)
    estimator.train(input_fn, max_steps=4)
    print_summaries("rate", params["host_call_dir"])
    print_summaries("w", directory)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, tpuserve.emulated_tpu(cores=2):
        main(directory)
