"""Lines of JSON become arrays of exactly their values, or the line that cannot is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tpuserve.prediction import models
from tpuserve.errors import InvalidJson
from tpuserve.prediction.batch import Position
from tpuserve.prediction.readers.json_lines import read_json_batches
from tpuserve.saved_model.signature import Signature, TensorSpec


def read_lines(tmp_path: Path, dtype: str, rows: list[Any]) -> Any:
    """Write a line for each row; return the input "x" as it is read for a signature."""
    path = models.write_lines(tmp_path / "rows.jsonl", rows)
    signatures = {"f": Signature({"x": TensorSpec("x:0", dtype, None)}, {})}
    (batch,) = read_json_batches(str(path), signatures, "f", len(rows), Position())
    return batch.inputs["x"]


@pytest.mark.parametrize("rows", [[5, 2**63 + 5], [[1, 2**64 - 1], [2, 3]]])
def test_small_and_large_integers_keep_their_values(tmp_path: Path, rows: list[Any]) -> None:
    array = read_lines(tmp_path, "uint64", rows)
    assert (array.dtype, array.tolist()) == (np.dtype(np.uint64), rows)


@pytest.mark.parametrize(
    ("dtype", "rows", "reason"),
    [
        ("uint64", [2**63, -1], "is out of the range of uint64"),
        ("int64", [-1, 2**63], "is out of the range of int64"),
        ("uint64", [5, 2**64], "is not of uint64"),
        ("uint64", [5, 2.0], "is not of uint64"),
        ("float32", [[0.5, 2.5], [1.5, True]], "is not of float32"),
        ("float32", [[[1.5]], [[False]]], "is not of float32"),
        ("int32", [2, True], "is not of int32"),
        ("bool", [True, 1], "is not of bool"),
        ("float32", [3e38, 1e39], "is out of the range of float32"),
        ("bfloat16", [1.0, -1e39], "is out of the range of bfloat16"),
        ("float16", [65504, 1e5], "is out of the range of float16"),
        ("complex64", [1.0, 1e39], "is out of the range of complex64"),
        ("string", [["a", "b"], ["c"]], "has the shape [1], before it [2]"),
        ("string", ["a", ["c"]], "has the shape [1], before it []"),
        ("string", [[["a"], ["b"]], [["a"], ["b", "c"]]], "is a list whose elements differ in"),
    ],
)
def test_a_line_that_does_not_fit_is_named(
    tmp_path: Path, dtype: str, rows: list[Any], reason: str
) -> None:
    with pytest.raises(InvalidJson) as caught:
        read_lines(tmp_path, dtype, rows)
    assert str(caught.value).startswith(f"line 2 of {tmp_path}/rows.jsonl: the input 'x' {reason}")
