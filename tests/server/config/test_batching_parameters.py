"""A parameters file is read as TensorFlow Serving reads it."""

from pathlib import Path

import pytest

from server.config import batching_parameters
from server.config.batching_parameters import BatchingParameters
from tpuserve.errors import InvalidConfig

FULL = """
max_batch_size { value: 128 }, batch_timeout_micros: { value: 500 };
max_enqueued_batches { value: 7 }
num_batch_threads { value: 3 }
thread_pool_name { value: "pool" }
allowed_batch_sizes: 16 allowed_batch_sizes: 64
pad_variable_length_inputs: true  # ragged
enable_large_batch_splitting { value: true }
max_execution_batch_size { value: 64 }
"""


def read_parameters(tmp_path: Path, text: str) -> BatchingParameters:
    path = tmp_path / "batching.txt"
    path.write_text(text)
    return batching_parameters.read_batching_parameters(path)


def test_every_field_is_read(tmp_path: Path) -> None:
    assert read_parameters(tmp_path, FULL) == BatchingParameters(
        128, 500, 7, 3, "pool", (16, 64), True, True, 64
    )


def test_what_is_left_out_is_as_by_default(tmp_path: Path) -> None:
    parameters = read_parameters(tmp_path, "max_batch_size { value: 5 }")
    assert parameters == BatchingParameters(5, 0, 10, None, "batch_threads")
    assert not parameters.pad_variable_length_inputs
    assert not parameters.enable_large_batch_splitting


def test_defaults_without_a_file() -> None:
    parameters = BatchingParameters()
    assert (parameters.max_batch_size, parameters.batch_timeout_micros) == (1000, 0)
    assert (parameters.max_enqueued_batches, parameters.thread_pool_name) == (
        10,
        "model_server_batch_threads",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: [2, 4]",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; "
            "expected 8",
        ),
        (
            "max_batch_size { value: 8 } allowed_batch_sizes: [2, 8] "
            "enable_large_batch_splitting { value: true } max_execution_batch_size { value: 4 }",
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 8; "
            "expected 4",
        ),
    ],
)
def test_last_allowed_size_is_the_largest_batch(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_parameters(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/batching.txt: {message}"


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size { value: 0 }",
        "batch_timeout_micros { value: -1 }",
        "max_enqueued_batches { value: 0 }",
        "num_batch_threads { value: 0 }",
        "max_batch_size { value: 4 } allowed_batch_sizes: [3, 2, 4]",
        "max_batch_size { value: 4 } allowed_batch_sizes: [0, 4]",
        "enable_large_batch_splitting { value: true } max_execution_batch_size { value: 1001 }",
    ],
)
def test_impossible_values_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig):
        read_parameters(tmp_path, text)


@pytest.mark.parametrize("text", ["max_batch_size: 5", "unknown: 1", "{"])
def test_file_that_cannot_be_parsed_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_parameters(tmp_path, text)
    assert str(caught.value).startswith(
        f"Invalid protobuf file: '{tmp_path}/batching.txt': line 1, column "
    )
    assert "Error parsing text-format tensorflow.serving.BatchingParameters" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="absent"):
        batching_parameters.read_batching_parameters(tmp_path / "absent")


@pytest.mark.parametrize(("size", "padded"), [(0, 0), (1, 4), (4, 4), (5, 10), (10, 10)])
def test_batch_is_padded_to_the_least_allowed_size(size: int, padded: int) -> None:
    parameters = BatchingParameters(max_batch_size=10, allowed_batch_sizes=(4, 10))
    assert parameters.padded_size(size) == padded


def test_any_size_is_allowed_where_none_is_named() -> None:
    assert BatchingParameters().padded_size(7) == 7


def test_runtime_that_compiles_gets_powers_of_two_where_batches_have_any_size() -> None:
    parameters = BatchingParameters(batching_policy="continuous", max_batch_size=100)
    sizes = parameters.padded_to_powers().allowed_batch_sizes
    assert sizes == (1, 2, 4, 8, 16, 32, 64, 100)
    assert parameters.compiled_sizes == (1, 2, 4, 8, 16, 32)


def test_runtime_that_compiles_keeps_the_allowed_batch_sizes() -> None:
    parameters = BatchingParameters(max_batch_size=48, allowed_batch_sizes=(1, 48))
    assert parameters.padded_to_powers() is parameters
    assert parameters.compiled_sizes == (1, 48)
    assert BatchingParameters().compiled_sizes == ()
