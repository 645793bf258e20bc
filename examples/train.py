"""Fit a line on the CPU or on a TPU, starting from the checkpoint of the previous run.

    $ python examples/train.py /tmp/line --max_steps=20
    step 20: y = 1.96 x + 1.00
    $ TPUSERVE_EMULATED_TPU=8 python examples/train.py /tmp/line --max_steps=60 --use_tpu
    step 60: y = 2.00 x + 1.00

The second run continues from the checkpoint of the first run, on 8 emulated cores. On a machine
with a TPU, the same command without the environment variable trains on the TPU.
"""

import argparse

import tensorflow.compat.v1 as tf

import trainer


def model_fn(features, labels, mode, params):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    # On 8 cores, each core gets params["batch_size"] = 4 of the 32 rows of a step.
    loss = tf.losses.mean_squared_error(labels, w * features["x"] + b)
    # The optimizer averages the gradients over the cores. Off the TPU it changes nothing.
    optimizer = trainer.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.25))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params):
    x = tf.reshape(tf.linspace(-1.0, 1.0, 32), [32, 1])
    rows = tf.data.Dataset.from_tensor_slices(({"x": x}, 2 * x + 1)).repeat()
    # A TPU program is compiled for one batch size, so no batch may be smaller.
    return rows.batch(params["batch_size"], drop_remainder=True)


def main(directory, max_steps, use_tpu):
    estimator = trainer.TPUEstimator(
        model_fn,
        directory,
        # Each session.run executes 10 steps, on every device.
        trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=10)),
        use_tpu=use_tpu,
        train_batch_size=32,
    )
    estimator.train(input_fn, max_steps=max_steps)
    step, w, b = (estimator.get_variable_value(name) for name in ("global_step", "w", "b"))
    print(f"step {step}: y = {w:.2f} x + {b:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", help="the directory of the checkpoints")
    parser.add_argument("--max_steps", type=int, required=True)
    parser.add_argument("--use_tpu", action="store_true")
    flags = parser.parse_args()
    main(flags.directory, flags.max_steps, flags.use_tpu)
