"""Image models: a classifier that decodes JPEG, a detector, a U-Net and a generator."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.zoo.zoo_model import Inputs, ZooModel, normal

_SIZE = 32


def _convolutions(x: Any, *filters: int, strides: int = 2) -> Any:
    for count in filters:
        x = keras.layers.Conv2D(count, 3, strides=strides, padding="same", activation="relu")(x)
    return x


def _write_model(network: Any, serve: Callable[..., Any], spec: Any, directory: Path) -> None:
    archive = keras.export.ExportArchive()
    archive.track(network)
    archive.add_endpoint("serve", serve, input_signature=[spec])
    archive.write_out(str(directory), verbose=False)


class _JpegClassifier:
    """Decodes and resizes each image, then classifies the images."""

    def __init__(self) -> None:
        keras.utils.set_random_seed(0)
        image = keras.Input((_SIZE, _SIZE, 3))
        x = keras.layers.GlobalAveragePooling2D()(_convolutions(image, 16, 32))
        self.network = keras.Model(image, keras.layers.Dense(10)(x))

    def classify(self, image_bytes: Any) -> dict[str, Any]:
        """Return the logits, float32 [rows, 10], and the class of each image, int64 [rows]."""

        def decode(contents: Any) -> Any:
            image = tf.io.decode_jpeg(contents, channels=3)
            return tf.image.resize(image, [_SIZE, _SIZE]) / 255.0

        images = tf.map_fn(decode, image_bytes, fn_output_signature=tf.float32)
        logits = self.network(tf.ensure_shape(images, [None, _SIZE, _SIZE, 3]))
        return {"logits": logits, "class": tf.argmax(logits, -1)}


def _write_jpeg_classifier(directory: Path) -> None:
    model = _JpegClassifier()
    image_bytes = tf.TensorSpec([None], tf.string, name="image_bytes")
    _write_model(model.network, model.classify, image_bytes, directory)


def _jpegs(rows: int) -> Inputs:
    random = np.random.default_rng(rows)
    images = random.integers(0, 256, [rows, 24, 40, 3], np.uint8)
    return {"image_bytes": np.array([tf.io.encode_jpeg(image).numpy() for image in images], object)}


class _Detector:
    """Proposes a box for each cell of a grid, and keeps the best boxes that do not overlap."""

    _GRID = 8
    _CLASSES = 3

    def __init__(self) -> None:
        keras.utils.set_random_seed(0)
        image = keras.Input((_SIZE, _SIZE, 3))
        x = _convolutions(image, 16, 32)
        heads = [keras.layers.Conv2D(4, 1)(x), keras.layers.Conv2D(self._CLASSES, 1)(x)]
        self.network = keras.Model(image, heads)

    def detect(self, image: Any) -> dict[str, Any]:
        """Return five boxes of each image, [rows, 5, 4], with scores and classes, [rows, 5]."""
        offsets, logits = self.network(image)
        cells = tf.range(self._GRID, dtype=tf.float32) / self._GRID
        corners = tf.stack(tf.meshgrid(cells, cells, indexing="ij"), -1)
        top_left = corners + 0.1 * tf.tanh(offsets[..., :2])
        bottom_right = top_left + 0.3 * tf.sigmoid(offsets[..., 2:])
        boxes = tf.reshape(
            tf.concat([top_left, bottom_right], -1), [-1, self._GRID * self._GRID, 1, 4]
        )
        scores = tf.reshape(tf.sigmoid(logits), [-1, self._GRID * self._GRID, self._CLASSES])
        chosen = tf.image.combined_non_max_suppression(boxes, scores, 5, 5, iou_threshold=0.5)
        return {
            "boxes": chosen.nmsed_boxes,
            "scores": chosen.nmsed_scores,
            "classes": chosen.nmsed_classes,
        }


def _write_detector(directory: Path) -> None:
    model = _Detector()
    image = tf.TensorSpec([None, _SIZE, _SIZE, 3], tf.float32, name="image")
    _write_model(model.network, model.detect, image, directory)


def _write_u_net(directory: Path) -> None:
    keras.utils.set_random_seed(0)
    image = keras.Input((_SIZE, _SIZE, 3), name="image")
    fine = _convolutions(image, 16, strides=1)
    coarse = _convolutions(fine, 32)
    coarsest = _convolutions(coarse, 64)
    x = keras.layers.Conv2DTranspose(32, 2, strides=2)(coarsest)
    x = _convolutions(keras.layers.Concatenate()([x, coarse]), 32, strides=1)
    x = keras.layers.UpSampling2D(interpolation="bilinear")(x)
    x = _convolutions(keras.layers.Concatenate()([x, fine]), 16, strides=1)
    keras.Model(image, keras.layers.Conv2D(2, 1)(x)).export(str(directory), verbose=False)


def _write_generator(directory: Path) -> None:
    keras.utils.set_random_seed(0)
    noise = keras.Input((16,), name="noise")
    x = keras.layers.Reshape((4, 4, 32))(keras.layers.Dense(512)(noise))
    for filters in (32, 16):
        x = keras.layers.Conv2DTranspose(filters, 4, strides=2, padding="same")(x)
        x = keras.layers.LeakyReLU()(keras.layers.GroupNormalization(4)(x))
    image = keras.layers.Conv2D(3, 3, padding="same", activation="tanh")(x)
    keras.Model(noise, image).export(str(directory), verbose=False)


JPEG_CLASSIFIER = ZooModel(
    "JPEG classifier", "Keras 3, `ExportArchive`", _write_jpeg_classifier, _jpegs
)
DETECTOR = ZooModel(
    "object detector, non-maximum suppression",
    "Keras 3, `ExportArchive`",
    _write_detector,
    normal("image", _SIZE, _SIZE, 3),
)

ALL = (
    JPEG_CLASSIFIER,
    DETECTOR,
    ZooModel("U-Net", "Keras 3, `model.export`", _write_u_net, normal("image", _SIZE, _SIZE, 3)),
    ZooModel("GAN generator", "Keras 3, `model.export`", _write_generator, normal("noise", 16)),
)
