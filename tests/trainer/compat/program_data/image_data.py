"""Writes small images as the TFRecord files of the program resnet_like.py."""

from pathlib import Path

import numpy as np
import tensorflow as tf

CLASSES = 6
_SIZE = 8


def write_records(directory: Path) -> None:
    """Write 64 images for training in 4 files, and 32 for evaluation in 2; a class is a hue."""
    directory.mkdir()
    generator = np.random.default_rng(0)
    for name, files in (("train", 4), ("validation", 2)):
        for number in range(files):
            path = directory / f"{name}-{number:05d}-of-{files:05d}"
            with tf.io.TFRecordWriter(str(path)) as writer:
                for row in range(16):
                    writer.write(_make_example(generator, (16 * number + row) % CLASSES))


def _make_example(generator: np.random.Generator, label: int) -> bytes:
    hue = np.array([40 + 160 * (label % 2), 40 + 80 * (label // 2), 120])
    noisy = hue + generator.integers(-20, 21, [_SIZE, _SIZE, 3])
    encoded = tf.io.encode_png(noisy.astype(np.uint8)).numpy()
    example = tf.train.Example()
    example.features.feature["image/encoded"].bytes_list.value.append(encoded)
    example.features.feature["image/class/label"].int64_list.value.append(label)
    serialized: bytes = example.SerializeToString()
    return serialized
