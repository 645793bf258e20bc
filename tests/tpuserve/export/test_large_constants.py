"""Large constants of exported functions: variables that both metagraphs share."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.export import answers
from tpuserve.export import BatchConfig, export, large_constants
from tpuserve.saved_model import metagraph

# 1.2 MB: row i is i, so that the product with a vector of ones is the sum of 0 to 599.
WEIGHTS = np.repeat(np.arange(600, dtype=np.float32), 500).reshape(600, 500)
X = {"x": tf.TensorSpec([None, 600], tf.float32)}
ONES = np.ones([2, 600], np.float32)
SUM = 600 * 599 / 2


def from_numpy() -> Callable[..., Any]:
    return lambda x: {"y": x @ WEIGHTS}


def from_eager_tensor() -> Callable[..., Any]:
    weights = tf.constant(WEIGHTS)
    return lambda x: {"y": x @ weights}


def check_answers(directory: str) -> None:
    y = answers.both(directory, x=ONES)["y"]
    np.testing.assert_allclose(y, np.full([2, 500], SUM), rtol=1e-6)


@pytest.mark.parametrize("make", [from_numpy, from_eager_tensor])
@pytest.mark.parametrize("config", [None, BatchConfig(1, 4, 0, [4])], ids=["", "batched"])
@pytest.mark.numeric
def test_large_constant_is_stored_once_as_a_variable(
    tmp_path: Path,
    make: Callable[[], Any],
    config: BatchConfig | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "tpuserve"):
        directory = export(make(), X, tmp_path, batch_config=config)
    assert "exporting 1 constants of 1.2 MB as variables" in caplog.text
    described = metagraph.read_saved_model(Path(directory))
    assert described.graph_bytes < 100_000
    for stored in described.metagraphs:
        assert [variable.shape for variable in stored.variables] == [(600, 500)]
    check_answers(directory)


def test_smaller_constants_and_sizes_stay_constants(tmp_path: Path) -> None:
    small = np.ones([600, 2], np.float32)
    many = np.arange(300_000, dtype=np.int32)

    def model(x: Any) -> Any:
        return {"y": x @ small, "z": tf.gather(many, tf.cast(x[:, 0], tf.int32))}

    directory = export(model, X, tmp_path)
    described = metagraph.read_saved_model(Path(directory))
    assert [metagraph.variables for metagraph in described.metagraphs] == [(), ()]
    assert answers.both(directory, x=ONES)["z"].tolist() == [1, 1]


@pytest.mark.numeric
def test_functions_of_the_user_keep_their_constants(tmp_path: Path) -> None:
    multiply = tf.function(lambda x: x @ WEIGHTS, autograph=False)
    directory = export(lambda x: {"y": multiply(x)}, X, tmp_path)
    described = metagraph.read_saved_model(Path(directory))
    assert [metagraph.variables for metagraph in described.metagraphs] == [(), ()]
    check_answers(directory)
    np.testing.assert_allclose(multiply(tf.constant(ONES))[0, 0], SUM, rtol=1e-6)


def test_least_size_is_an_argument() -> None:
    @tf.function
    def double(x: Any) -> Any:
        large_constants.lift_constants()
        return x * np.array([2, 2], np.float32)

    with large_constants.lifting(least_bytes=8):
        lifted = double.get_concrete_function(tf.TensorSpec([2])).graph
    assert [operation.type for operation in lifted.get_operations()].count("ReadVariableOp") == 1
    with large_constants.lifting(least_bytes=9):
        plain_graph = double.get_concrete_function(tf.TensorSpec([None])).graph
    assert "ReadVariableOp" not in [operation.type for operation in plain_graph.get_operations()]
