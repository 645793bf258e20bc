"""Evaluate 10 rows in batches of 8: on every device, each row has the same weight.

    $ python examples/evaluate_uneven.py
    CPU      mean 5.5, mean error 0.1, loss 0.1
    4 cores  mean 5.5, mean error 0.1, loss 0.1

The labels are 1 to 10. The model predicts every row correctly, except the last row, whose
prediction is too small by 1. Without the last 2 rows the mean would be 4.5 and the error 0. The
average of the two batches would be a mean of 7 and an error of 0.25.
"""

import tempfile

import tensorflow.compat.v1 as tf

import tpuserve
import trainer


def model_fn(features, labels, mode):
    y = features["y"]
    loss = tf.losses.mean_squared_error(labels, y)
    return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, y]))


def metric_fn(labels, y):
    # Runs on the host with the rows of all cores, without padding.
    return {"mean": tf.metrics.mean(labels), "error": tf.metrics.mean_absolute_error(labels, y)}


def input_fn(params):
    labels = tf.reshape(tf.range(1.0, 11.0), [10, 1])
    y = tf.where(labels < 10, labels, labels - 1)
    rows = tf.data.Dataset.from_tensor_slices(({"y": y}, labels))
    return rows.batch(params["batch_size"])  # An evaluation needs no drop_remainder.


def evaluate(directory, use_tpu):
    estimator = trainer.TPUEstimator(
        model_fn, directory, trainer.RunConfig(), use_tpu=use_tpu, eval_batch_size=8
    )
    return estimator.evaluate(input_fn)


def main():
    with tempfile.TemporaryDirectory() as directory:
        results = {"CPU": evaluate(directory, use_tpu=False)}
        with tpuserve.emulated_tpu(cores=4):
            results["4 cores"] = evaluate(directory, use_tpu=True)
    for device, metrics in results.items():
        print(
            f"{device:8} mean {metrics['mean']:.1f}, mean error {metrics['error']:.1f}, "
            f"loss {metrics['loss']:.1f}"
        )


if __name__ == "__main__":
    main()
