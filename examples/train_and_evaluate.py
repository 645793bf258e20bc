"""Train, evaluate each checkpoint, export the best model, and stop at a target loss.

    $ python examples/train_and_evaluate.py
    stopped at step 15 of 1000, loss 0.0050
    exports of the best: 3

Each evaluation, at steps 5, 10 and 15, improves the loss, so all 3 models are exported.
"""

import tempfile
from pathlib import Path

import tensorflow.compat.v1 as tf

import tpuserve
import trainer


def model_fn(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    y = w * features["x"]
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.TPUEstimatorSpec(mode, predictions={"y": y})
    loss = tf.losses.mean_squared_error(labels, y)
    if mode == trainer.ModeKeys.EVAL:
        return trainer.TPUEstimatorSpec(mode, loss=loss)
    optimizer = trainer.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params):
    x = tf.ones([8, 1])
    rows = tf.data.Dataset.from_tensor_slices(({"x": x}, 2 * x)).repeat()
    return rows.batch(params["batch_size"], drop_remainder=True)


def serving_input_receiver_fn():
    x = tf.placeholder(tf.float32, [None, 1], name="x")
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def main(directory):
    # Each checkpoint, every 5 steps, is evaluated.
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=5), model_dir=directory, save_checkpoints_steps=5
    )
    estimator = trainer.TPUEstimator(model_fn, config=config, train_batch_size=8, eval_batch_size=8)
    stop = trainer.experimental.stop_if_lower_hook(
        estimator, "loss", threshold=0.01, run_every_secs=None, run_every_steps=5
    )
    best = trainer.BestExporter(serving_input_receiver_fn=serving_input_receiver_fn)
    metrics, _ = trainer.train_and_evaluate(
        estimator,
        trainer.TrainSpec(input_fn, max_steps=1000, hooks=[stop]),
        trainer.EvalSpec(input_fn, steps=1, exporters=[best], start_delay_secs=0, throttle_secs=0),
    )
    print(f"stopped at step {metrics['global_step']} of 1000, loss {metrics['loss']:.4f}")
    print(f"exports of the best: {len(list(Path(directory, 'export/best_exporter').iterdir()))}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, tpuserve.emulated_tpu(cores=4):
        main(directory)
