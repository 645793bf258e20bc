from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export import export, saved_model_writer

# An array of 0.4 MB: 100,000 numbers of 4 bytes.
NUMBERS = np.arange(100_000, dtype=np.float32)


def graph_of(*values: tf.Tensor | np.ndarray[Any, Any]) -> tf.Graph:
    with tf.Graph().as_default() as graph:
        for value in values:
            tf.constant(value, name="table")
    return graph


def test_the_constants_of_all_graphs_count_together() -> None:
    graphs = [graph_of(NUMBERS), graph_of(NUMBERS, NUMBERS[:50_000])]
    saved_model_writer.check_proto_size(graphs, 1_100_000)
    with pytest.raises(ExportError, match="can hold 900000; the largest, 'table', has 400.*varia"):
        saved_model_writer.check_proto_size(graphs, 900_000)


def test_a_repeated_value_is_stored_once() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(1.0, shape=[1_000_000])
    saved_model_writer.check_proto_size([graph], 1000)


def test_a_model_with_too_many_constants_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_model_writer, "MOST_BYTES", 700_000)
    with pytest.raises(ExportError, match="Make it a variable"):
        export(lambda x: x + NUMBERS, {"x": tf.TensorSpec([1])}, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
