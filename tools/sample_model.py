"""Trains the sample model, which `tpuserve serve --sample` serves.

    python -m tools.sample_model server/sample/models/digits

The model classifies handwritten digits of 8 x 8 pixels, so that a request fits on a terminal. The
images are MNIST's, made smaller. TPUEstimator trains the model and exports both metagraphs as
version 1.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np
import tensorflow.compat.v1 as tf

import trainer
from trainer.demo.digits import Digits, load_digits

_BATCH_SIZE = 100
_STEPS = 4_000
# The margin of an MNIST image that is cut off: 24 x 24 pixels remain.
_MARGIN = 2
# The part of a block of 3 x 3 pixels that must be ink for the small pixel to be ink.
_INK_SHARE = 0.3


def shrink_images(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Shrink MNIST images, and set each pixel to ink or paper.

    Args:
      images: uint8 [n, 784], 0 to 255.

    Returns:
      float32 [n, 8, 8], 0 (paper) or 1 (ink).
    """
    pixels = images.reshape(-1, 28, 28)[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    blocks = pixels.reshape(-1, 8, 3, 8, 3).mean(axis=(2, 4))
    is_ink: np.ndarray[Any, Any] = blocks > 255 * _INK_SHARE
    return is_ink.astype(np.float32)


def _model_fn(features: Any, labels: Any, mode: str) -> trainer.TPUEstimatorSpec:
    image = tf.reshape(features["image"], [-1, 8, 8, 1])
    hidden = tf.layers.conv2d(image, 32, 3, padding="same", activation=tf.nn.relu)
    hidden = tf.layers.conv2d(hidden, 48, 3, strides=2, padding="same", activation=tf.nn.relu)
    hidden = tf.reshape(hidden, [-1, 4 * 4 * 48])
    is_training = mode == trainer.ModeKeys.TRAIN
    hidden = tf.layers.dropout(hidden, rate=0.4, training=is_training)
    logits = tf.layers.dense(hidden, 10)
    if mode == trainer.ModeKeys.PREDICT:
        probabilities = tf.nn.softmax(logits)
        predictions = {
            "digit": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=1),
        }
        return trainer.TPUEstimatorSpec(mode, predictions=predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    if mode == trainer.ModeKeys.EVAL:
        return trainer.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(_metric_fn, [labels, logits])
        )
    optimizer = trainer.CrossShardOptimizer(tf.train.AdamOptimizer(1e-3))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def _metric_fn(labels: Any, logits: Any) -> dict[str, Any]:
    return {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, axis=1))}


def _make_input_fn(digits: Digits, *, is_training: bool) -> Any:
    images, labels = shrink_images(digits.images), digits.labels.astype(np.int32)

    def move(features: Any, labels: Any) -> Any:
        # A digit that a user types is not centred as MNIST's are. All digits of a batch move alike.
        image = features["image"]
        padded = tf.pad(image, [[0, 0], [1, 1], [1, 1]])
        return {"image": tf.image.random_crop(padded, image.shape, seed=3)}, labels

    def input_fn(params: dict[str, Any]) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(({"image": images}, labels))
        if is_training:
            dataset = dataset.shuffle(len(images), seed=1).repeat()
        dataset = dataset.batch(params["batch_size"], drop_remainder=True)
        return dataset.map(move) if is_training else dataset

    return input_fn


def _serving_input_receiver_fn() -> trainer.ServingInputReceiver:
    image = tf.placeholder(tf.float32, [None, 8, 8], name="image")
    return trainer.ServingInputReceiver({"image": image}, {"image": image})


def main(base_path: str) -> None:
    """Train the model, export version 1, and print the accuracy on digits not seen in training."""
    version_directory = Path(base_path) / "1"
    if version_directory.exists():
        sys.exit(f"{version_directory} exists. Remove it first.")
    training_digits, test_digits = load_digits()
    with tempfile.TemporaryDirectory() as directory:
        config = trainer.RunConfig(
            trainer.TPUConfig(iterations_per_loop=1000),
            model_dir=f"{directory}/model",
            tf_random_seed=1,
        )
        estimator = trainer.TPUEstimator(
            _model_fn,
            config=config,
            use_tpu=False,
            train_batch_size=_BATCH_SIZE,
            eval_batch_size=_BATCH_SIZE,
        )
        estimator.train(_make_input_fn(training_digits, is_training=True), max_steps=_STEPS)
        evaluation = estimator.evaluate(_make_input_fn(test_digits, is_training=False), steps=10)
        print(f"accuracy: {evaluation['accuracy']:.3f}")
        export = estimator.export_saved_model(f"{directory}/export", _serving_input_receiver_fn)
        version_directory.parent.mkdir(parents=True, exist_ok=True)
        Path(export.decode()).rename(version_directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base_path", help="directory in which to create version 1 of the model")
    main(parser.parse_args().base_path)
