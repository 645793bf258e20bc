"""Sample inputs come from warm-up requests, or are generated so that the graph accepts them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.compat.v1 as v1
from tensorflow_serving.apis import prediction_log_pb2

from server.warmup.sample_request import sample_rows
from tests import models
from tpuserve.runtime import loader


def write_warm_up(directory: Path, *requests: Any) -> None:
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for x in requests:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array(x, np.float32)))
            writer.write(log.SerializeToString())


def rows_of(directory: Path) -> Any:
    model = loader.load(directory)
    try:
        return sample_rows(model, directory, "serving_default")
    finally:
        model.close()


def test_rows_are_generated_from_the_signature(tmp_path: Path) -> None:
    rows = rows_of(models.export(models.half_plus_two, tmp_path))
    assert rows["x"].shape == (3, 1)
    assert len(np.unique(rows["x"])) == 3


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([[[1.0]], [[2.0], [2.0], [5.0], [7.0]]], [[1.0], [2.0], [5.0]]),
        ([[[1.0]], [[1.0], [4.0]]], [[1.0], [4.0]]),
        ([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0]]], [[1.0], [2.0], [3.0]]),
    ],
)
def test_different_rows_of_warm_up_requests_come_first(
    tmp_path: Path, requests: Any, expected: Any
) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    write_warm_up(directory, *requests)
    assert rows_of(directory)["x"].tolist() == expected


def test_one_warm_up_row_shows_nothing_so_rows_are_generated(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    write_warm_up(directory, [[1.0], [1.0]])
    assert len(np.unique(rows_of(directory)["x"])) == 3


def test_strings_are_examples_that_the_graph_can_parse(tmp_path: Path) -> None:
    directory = tmp_path / "1"
    with v1.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        parsed = tf.io.parse_example(serialized, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        outputs = {"y": parsed["x"] * 2.0}
        v1.saved_model.simple_save(session, str(directory), {"examples": serialized}, outputs)
    rows = rows_of(directory)["examples"]
    assert [len(tf.train.Example.FromString(row).features.feature) for row in rows] == [1] * 3
