"""Predict 5 rows in batches of 4 on a TPU: the results contain no row of the padding.

    $ python examples/predict_padding.py
    row 0: x = 1.0, 0.10 of its batch
    row 1: x = 2.0, 0.20 of its batch
    row 2: x = 3.0, 0.30 of its batch
    row 3: x = 4.0, 0.40 of its batch
    row 4: x = 5.0, 1.00 of its batch

The model detects the padding: features["is_padding"] is 1 for the rows that pad the last batch.
"""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

import tpuserve
import trainer


def model_fn(features, labels, mode):
    x = features["x"]
    if mode == trainer.ModeKeys.PREDICT:
        # Off the TPU there is no padding, and the feature is missing.
        is_padding = features.get("is_padding", tf.zeros(tf.shape(x), tf.int32))
        total = tf.reduce_sum(x * (1 - tf.cast(is_padding, tf.float32)))
        # Each core has only some rows of the batch, so add up the sums of all cores.
        share = x / trainer.cross_replica_sum(total)
        return trainer.TPUEstimatorSpec(mode, predictions={"x": x, "share": share})
    train_op = tf.train.get_global_step().assign_add(1)
    return trainer.TPUEstimatorSpec(mode, loss=tf.reduce_mean(x - labels), train_op=train_op)


def make_input_fn(x, repeat):
    def input_fn(params):
        rows = tf.data.Dataset.from_tensor_slices(({"x": np.float32(x)}, np.float32(x)))
        if repeat:
            return rows.repeat().batch(params["batch_size"], drop_remainder=True)
        return rows.batch(params["batch_size"])

    return input_fn


def main():
    with tempfile.TemporaryDirectory() as directory, tpuserve.emulated_tpu(cores=2):
        estimator = trainer.TPUEstimator(
            model_fn, directory, trainer.RunConfig(), train_batch_size=4, predict_batch_size=4
        )
        estimator.train(make_input_fn([1, 2], repeat=True), max_steps=1)
        predictions = estimator.predict(make_input_fn([1, 2, 3, 4, 5], repeat=False))
        for number, row in enumerate(predictions):
            print(f"row {number}: x = {row['x']:.1f}, {row['share']:.2f} of its batch")


if __name__ == "__main__":
    main()
