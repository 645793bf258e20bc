"""The MNIST CNN as a TPUEstimator program: train, evaluate, export for CPU and TPU.

    python mnist.py --data_dir=DATA --model_dir=MODEL --export_dir=EXPORT [--use_tpu]

DATA holds train.tfrecord and test.tfrecord: tf.Examples with `image_raw` (784 bytes) and `label`.
"""

import argparse
import os

# Select legacy Keras (tf_keras), which tf.layers needs, before TensorFlow is imported.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow.compat.v1 as tf

import trainer


def model_fn(features, labels, mode, params):
    image = tf.reshape(features["image"], [-1, 28, 28, 1])
    conv1 = tf.layers.conv2d(image, 32, 5, padding="same", activation=tf.nn.relu)
    pool1 = tf.layers.max_pooling2d(conv1, 2, 2)
    conv2 = tf.layers.conv2d(pool1, 64, 5, padding="same", activation=tf.nn.relu)
    pool2 = tf.layers.max_pooling2d(conv2, 2, 2)
    dense = tf.layers.dense(tf.reshape(pool2, [-1, 7 * 7 * 64]), 128, activation=tf.nn.relu)
    training = mode == trainer.ModeKeys.TRAIN
    logits = tf.layers.dense(tf.layers.dropout(dense, rate=0.4, training=training), 10)

    if mode == trainer.ModeKeys.PREDICT:
        predictions = {
            "class": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }
        return trainer.TPUEstimatorSpec(mode, predictions=predictions)

    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == trainer.ModeKeys.EVAL:
        return trainer.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))

    step = tf.train.get_global_step()
    learning_rate = tf.train.exponential_decay(params["learning_rate"], step, 100_000, 0.96)
    optimizer = trainer.CrossShardOptimizer(tf.train.GradientDescentOptimizer(learning_rate))
    train_op = optimizer.minimize(loss, global_step=step)
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def metric_fn(labels, logits):
    return {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))}


def make_input_fn(filename, training):
    def parse(serialized):
        features = {
            "image_raw": tf.FixedLenFeature([], tf.string),
            "label": tf.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_example(serialized, features)
        # Set the shape by ensure_shape. A reshape to [-1, 784] would make the static batch size
        # unknown, and a TPU needs it.
        image = tf.ensure_shape(tf.io.decode_raw(example["image_raw"], tf.uint8), [None, 784])
        image = tf.cast(image, tf.float32) / 255.0 - 0.5
        return {"image": image}, tf.cast(example["label"], tf.int32)

    def input_fn(params):
        dataset = tf.data.TFRecordDataset(filename)
        if training:
            dataset = dataset.cache().shuffle(4000, seed=1).repeat()
        dataset = dataset.batch(params["batch_size"], drop_remainder=training)
        return dataset.map(parse).prefetch(2)

    return input_fn


def serving_input_receiver_fn():
    image = tf.placeholder(tf.float32, [None, 784], name="image")
    return trainer.ServingInputReceiver({"image": image}, {"image": image})


def make_estimator(model_dir, use_tpu=False):
    config = trainer.RunConfig(
        trainer.TPUConfig(iterations_per_loop=40), model_dir=model_dir, tf_random_seed=1
    )
    return trainer.TPUEstimator(
        model_fn,
        config=config,
        params={"learning_rate": 0.05},
        use_tpu=use_tpu,
        train_batch_size=32,
        eval_batch_size=200,
    )


def main():
    parser = argparse.ArgumentParser()
    for directory in ("data_dir", "model_dir", "export_dir"):
        parser.add_argument(f"--{directory}", required=True)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--use_tpu", action="store_true")
    flags = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)
    estimator = make_estimator(flags.model_dir, flags.use_tpu)
    estimator.train(make_input_fn(f"{flags.data_dir}/train.tfrecord", True), max_steps=flags.steps)
    print(estimator.evaluate(make_input_fn(f"{flags.data_dir}/test.tfrecord", False)))
    print(estimator.export_saved_model(flags.export_dir, serving_input_receiver_fn).decode())


if __name__ == "__main__":
    main()
