"""Initialise a model on a TPU with the weights of a model that was trained on the CPU.

    $ python examples/warm_start.py
    first model, 20 steps on the CPU: w = 2.0
    second model, 1 step on 4 cores: w = 2.0, b = 0.5

The second model starts with the w of the first model, and has an additional bias, b.
"""

import tempfile

import tensorflow.compat.v1 as tf

import tpuserve
import trainer


def model_fn(features, labels, mode, params):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    y = w * features["x"]
    if params["bias"]:
        y += tf.get_variable("b", [], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(labels, y)
    optimizer = trainer.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.25))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def make_input_fn(bias):
    def input_fn(params):
        x = tf.constant([[-1.0], [1.0]] * 4)
        rows = tf.data.Dataset.from_tensor_slices(({"x": x}, 2 * x + bias)).repeat()
        return rows.batch(params["batch_size"], drop_remainder=True)

    return input_fn


def main(directory):
    first = trainer.TPUEstimator(
        model_fn,
        f"{directory}/first",
        trainer.RunConfig(),
        params={"bias": False},
        use_tpu=False,
        train_batch_size=8,
    )
    first.train(make_input_fn(bias=0), max_steps=20)
    print(f"first model, 20 steps on the CPU: w = {first.get_variable_value('w'):.1f}")
    second = trainer.TPUEstimator(
        model_fn,
        f"{directory}/second",
        trainer.RunConfig(),
        params={"bias": True},
        train_batch_size=8,
        warm_start_from=trainer.WarmStartSettings(f"{directory}/first", vars_to_warm_start="w"),
    )
    with tpuserve.emulated_tpu(cores=4):
        second.train(make_input_fn(bias=1), max_steps=1)
    w, b = (second.get_variable_value(name) for name in "wb")
    print(f"second model, 1 step on 4 cores: w = {w:.1f}, b = {b:.1f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
