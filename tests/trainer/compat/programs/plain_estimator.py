"""Classifies points on a clock face in TensorFlow 2, by an Estimator and by a TPUEstimator."""

import argparse
import os

import numpy as np
import tensorflow as tf

TPU = tf.compat.v1.estimator.tpu


def make_data(seed, rows):
    """Return points on a clock face, and the third of the hour (0 to 2) that each is in."""
    angles = np.random.RandomState(seed).uniform(0, 2 * np.pi, rows)
    points = np.stack([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    return points, (angles * 3 / (2 * np.pi)).astype(np.int32)


def make_input_fn(seed, rows, batch_size, repeat):
    def input_fn(params=None):
        size = params["batch_size"] if params and "batch_size" in params else batch_size
        points, thirds = make_data(seed, rows)
        dataset = tf.data.Dataset.from_tensor_slices(({"point": points}, thirds))
        if repeat:
            dataset = dataset.shuffle(rows).repeat()
        return dataset.batch(size, drop_remainder=True)

    return input_fn


def network(is_training):
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(16, activation="relu"),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.Dense(3),
        ]
    )


def forward(features, labels, mode):
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    logits = network(is_training)(features["point"], training=is_training)
    if labels is None:
        return logits, None
    per_row = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=tf.keras.losses.Reduction.NONE
    )(labels, logits)
    return logits, tf.reduce_mean(per_row)


def model_fn(features, labels, mode, params):
    logits, loss = forward(features, labels, mode)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"third": tf.argmax(logits, -1)})
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    accuracy.update_state(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.AdamOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def tpu_model_fn(features, labels, mode, params):
    logits, loss = forward(features, labels, mode)
    if mode == tf.estimator.ModeKeys.PREDICT:
        third = tf.argmax(logits, -1, output_type=tf.int32)
        return TPU.TPUEstimatorSpec(mode, predictions={"third": third})
    if mode == tf.estimator.ModeKeys.EVAL:

        def metric_fn(labels, logits):
            accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
            accuracy.update_state(labels, logits)
            return {"accuracy": accuracy}

        return TPU.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    optimizer = tf.compat.v1.train.AdamOptimizer(params["learning_rate"])
    if params["on_tpu"]:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
    return TPU.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def run_estimator(model_dir):
    config = tf.estimator.RunConfig(
        model_dir=model_dir, tf_random_seed=1, save_checkpoints_steps=50
    )
    estimator = tf.estimator.Estimator(model_fn, config=config, params={"learning_rate": 0.03})
    exporter = tf.estimator.LatestExporter(
        "latest",
        tf.estimator.export.build_parsing_serving_input_receiver_fn(
            {"point": tf.io.FixedLenFeature([2], tf.float32)}
        ),
    )
    results, _ = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(make_input_fn(0, 256, 32, True), max_steps=100),
        tf.estimator.EvalSpec(
            make_input_fn(1, 64, 32, False), steps=None, exporters=[exporter], throttle_secs=0
        ),
    )
    return results


def run_tpu_estimator(model_dir, use_tpu):
    resolver = None
    if use_tpu and os.environ.get("TPU_NAME"):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    estimator = TPU.TPUEstimator(
        tpu_model_fn,
        use_tpu=use_tpu,
        config=TPU.RunConfig(
            model_dir=model_dir,
            cluster=resolver,
            tf_random_seed=1,
            tpu_config=TPU.TPUConfig(
                iterations_per_loop=50,
                per_host_input_for_training=TPU.InputPipelineConfig.PER_HOST_V2,
            ),
        ),
        params={"learning_rate": 0.03, "on_tpu": use_tpu},
        train_batch_size=32,
        eval_batch_size=32,
        predict_batch_size=32,
    )
    estimator.train(make_input_fn(0, 256, None, True), max_steps=100)
    results = estimator.evaluate(make_input_fn(1, 64, None, False), steps=2)
    thirds = [prediction["third"] for prediction in estimator.predict(make_input_fn(1, 64, None, False))]
    assert np.mean(np.array(thirds) == make_data(1, 64)[1]) == np.float32(results["accuracy"])
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir")
    parser.add_argument("--tpu", choices=["off", "on", "both"], default="off")
    args = parser.parse_args()
    assert tf.executing_eagerly()
    tf.get_logger().setLevel("ERROR")
    results = run_estimator(os.path.join(args.model_dir, "estimator"))
    print("estimator at step %(global_step)d: accuracy %(accuracy).3f" % results)
    for use_tpu in {"off": [False], "on": [True], "both": [False, True]}[args.tpu]:
        name = "tpu" if use_tpu else "no_tpu"
        results = run_tpu_estimator(os.path.join(args.model_dir, name), use_tpu)
        print(name + " at step %(global_step)d: accuracy %(accuracy).3f" % results)
    # The program must still have TensorFlow 2's behaviour.
    assert tf.executing_eagerly()
    assert not hasattr(tf, "get_variable")


if __name__ == "__main__":
    main()
