from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import lookup
from trainer.compat.contrib.slim import tfexample_decoder as decoder

v1 = tf.compat.v1

IMAGE = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def _feature(value: Any) -> Any:
    if isinstance(value[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    if isinstance(value[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def _decode(handler: Any, features: dict[str, Any], **values: Any) -> Any:
    """Decode one item of an Example that has the given values."""
    proto_features = {name: _feature(value) for name, value in values.items()}
    example = tf.train.Example(features=tf.train.Features(feature=proto_features))
    example_decoder = decoder.TFExampleDecoder(features, {"item": handler, "other": handler})
    assert example_decoder.list_items() == ["item", "other"]
    (item,) = example_decoder.decode(tf.constant(example.SerializeToString()), ["item"])
    with v1.Session() as session:
        session.run(v1.tables_initializer())
        return session.run(item)


_SPARSE = {name: tf.io.VarLenFeature(tf.int64) for name in ("v", "shape", "none")}


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (decoder.Tensor("v"), [1, 2, 3, 4]),
        (decoder.Tensor("v", shape=[2, 2]), [[1, 2], [3, 4]]),
        (decoder.Tensor("v", shape_keys="shape"), [[1], [2], [3], [4]]),
        (decoder.Tensor("none"), []),
        (decoder.BackupHandler(decoder.Tensor("none"), decoder.Tensor("v")), [1, 2, 3, 4]),
        (decoder.BackupHandler(decoder.Tensor("v"), decoder.Tensor("none")), [1, 2, 3, 4]),
        (decoder.SparseTensor("v", "v", shape=[6], densify=True), [0, 1, 2, 3, 4, 0]),
        (
            decoder.ItemHandlerCallback("v", lambda tensors: tensors["v"].values * 10),
            [10, 20, 30, 40],
        ),
    ],
)
def test_features_become_tensors(handler: Any, expected: Any) -> None:
    item = _decode(handler, _SPARSE, v=[1, 2, 3, 4], shape=[4, 1])
    assert item.tolist() == expected


def test_coordinates_become_boxes() -> None:
    sides = ("ymin", "xmin", "ymax", "xmax")
    features = {f"box/{side}": tf.io.VarLenFeature(tf.float32) for side in sides}
    values = {f"box/{side}": [index / 4, 1.0] for index, side in enumerate(sides)}
    item = _decode(decoder.BoundingBox(prefix="box/"), features, **values)
    assert item.tolist() == [[0, 0.25, 0.5, 0.75], [1, 1, 1, 1]]
    with pytest.raises(InvalidSetting, match="got 2 keys. Pass four"):
        decoder.BoundingBox(["ymin", "xmin"])


@pytest.mark.parametrize("image_format", [b"png", b"raw"])
def test_images_are_decoded_by_their_format(image_format: bytes) -> None:
    with v1.Session() as session:
        png = session.run(tf.io.encode_png(IMAGE))
    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string, default_value="jpeg"),
    }
    data = {"png": png, "raw": IMAGE.tobytes()}[image_format.decode()]
    values = {"image/encoded": [data], "image/format": [image_format]}
    image = _decode(decoder.Image(shape=[2, 2, 3]), features, **values)
    np.testing.assert_array_equal(image, IMAGE)


def test_repeated_images_are_stacked() -> None:
    with v1.Session() as session:
        png = session.run(tf.io.encode_png(IMAGE))
    features = {
        "many": tf.io.FixedLenFeature([2], tf.string),
        "image/format": tf.io.FixedLenFeature([], tf.string, default_value="png"),
    }
    images = _decode(decoder.Image("many", repeated=True), features, many=[png, png])
    np.testing.assert_array_equal(images, [IMAGE, IMAGE])


def test_features_are_looked_up_in_tables() -> None:
    table = lookup.index_table_from_tensor(mapping=["green", "red"])
    features = {"word": tf.io.FixedLenFeature([], tf.string)}
    assert _decode(decoder.LookupTensor("word", table), features, word=[b"red"]) == 1
    with pytest.raises(InvalidSetting, match="shape_keys and shape. Set one"):
        decoder.Tensor("word", shape_keys=["a"], shape=[1])
    with pytest.raises(InvalidSetting, match="Pass an ItemHandler"):
        decoder.BackupHandler(table, table)
