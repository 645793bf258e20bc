"""Integers of tf.train.Examples arrive unchanged in the dtypes of the inputs, or are refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tpuserve.prediction import models
from tpuserve.errors import InvalidTensor
from tpuserve.prediction.batch import Position
from tpuserve.prediction.readers.examples import read_example_batches
from tpuserve.saved_model.signature import Signature, TensorSpec


def read_integers(tmp_path: Path, dtype: str, integers: Sequence[int]) -> Any:
    """Write an Example for each integer; return the input "x" as it is read for a signature."""
    records = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[integer])),
                }
            )
        ).SerializeToString()
        for integer in integers
    ]
    path = models.write_records(tmp_path / "data", records)
    signatures = {"f": Signature({"x": TensorSpec("x:0", dtype, (None,))}, {})}
    (batch,) = read_example_batches(str(path), signatures, "f", len(records), Position())
    return batch.inputs["x"]


@pytest.mark.parametrize(
    ("dtype", "integer"),
    [("int32", 2**32 + 5), ("int8", -129), ("uint8", 300), ("uint16", -1), ("uint32", 2**32)],
)
def test_an_integer_out_of_the_range_of_the_input_is_refused(
    tmp_path: Path, dtype: str, integer: int
) -> None:
    with pytest.raises(InvalidTensor) as caught:
        read_integers(tmp_path, dtype, [7, integer])
    assert str(caught.value) == (
        f"{tmp_path}/data, records 0 to 1: the input 'x' has the value {integer}, which is out of "
        f"the range of {dtype}. Correct the Examples, or choose another signature."
    )


@pytest.mark.parametrize(
    ("dtype", "integers"),
    [("int32", [-(2**31), 2**31 - 1]), ("uint8", [0, 255]), ("int64", [-(2**63), 2**63 - 1])],
)
def test_the_smallest_and_the_largest_integers_are_read(
    tmp_path: Path, dtype: str, integers: list[int]
) -> None:
    array = read_integers(tmp_path, dtype, integers)
    assert (array.dtype, array.tolist()) == (np.dtype(dtype), integers)


def test_a_large_uint64_is_a_negative_integer_of_an_example(tmp_path: Path) -> None:
    assert read_integers(tmp_path, "uint64", [5, -1]).tolist() == [5, 2**64 - 1]
