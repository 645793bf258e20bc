"""Evaluates 10 rows in batches of 8: the last 2 count, on every device, with the right weight.

    $ python examples/evaluate_uneven.py
    CPU      mean 5.5, mean error 0.1, loss 0.1
    4 cores  mean 5.5, mean error 0.1, loss 0.1

The labels are 1 to 10, and the model is right but for the last row, where it is 1 off. Without the
last 2 rows the mean would be 4.5 and the error 0; as the mean of two batches they would be 7 and
0.25.
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
    # Runs on the host, with the real rows that all cores have sent there.
    return {"mean": tf.metrics.mean(labels), "error": tf.metrics.mean_absolute_error(labels, y)}


def input_fn(params):
    labels = tf.reshape(tf.range(1.0, 11.0), [10, 1])
    y = tf.where(labels < 10, labels, labels - 1)
    rows = tf.data.Dataset.from_tensor_slices(({"y": y}, labels))
    return rows.batch(params["batch_size"])  # no drop_remainder, in evaluation


def evaluate(directory, use_tpu):
    estimator = trainer.TPUEstimator(
        model_fn, directory, trainer.RunConfig(), use_tpu=use_tpu, eval_batch_size=8
    )
    return estimator.evaluate(input_fn)


def main():
    with tempfile.TemporaryDirectory() as directory:
        found = {"CPU": evaluate(directory, use_tpu=False)}
        with tpuserve.emulated_tpu(cores=4):
            found["4 cores"] = evaluate(directory, use_tpu=True)
    for device, each in found.items():
        print(
            f"{device:8} mean {each['mean']:.1f}, mean error {each['error']:.1f}, "
            f"loss {each['loss']:.1f}"
        )


if __name__ == "__main__":
    main()
