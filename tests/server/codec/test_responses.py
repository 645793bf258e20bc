"""Outputs are written as TensorFlow Serving lays them out."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from server.codec.responses import encode_columns, encode_rows
from tpuserve.errors import InvalidTensor

Y = np.array([2.5, 3.0, 4.5], np.float32)
TEXT = np.array([b"a", b"\xff"], object)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"y": Y}, b'{"predictions":[2.5,3.0,4.5]}'),
        (
            {"y": Y[:2], "z": Y[:2, None]},
            b'{"predictions":[{"y":2.5,"z":[2.5]},{"y":3.0,"z":[3.0]}]}',
        ),
        ({"y": np.zeros((0, 2), np.int32)}, b'{"predictions":[]}'),
        ({"text_bytes": TEXT}, b'{"predictions":[{"b64":"YQ=="},{"b64":"/w=="}]}'),
        ({"text": TEXT}, '{"predictions":["a","�"]}'.encode()),
        ({"y": np.array([0.1, math.nan], np.float32)}, b'{"predictions":[0.1,NaN]}'),
        ({"y": np.array([-math.inf, math.inf])}, b'{"predictions":[-Infinity,Infinity]}'),
        ({"y": np.asfortranarray([[1, 2], [3, 4]])}, b'{"predictions":[[1,2],[3,4]]}'),
        (
            {"y": np.array([True]), "n": np.array([7], np.uint8)},
            b'{"predictions":[{"y":true,"n":7}]}',
        ),
    ],
)
def test_rows(outputs: dict[str, Any], expected: bytes) -> None:
    assert encode_rows(outputs) == expected


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"y": Y}, b'{"outputs":[2.5,3.0,4.5]}'),
        ({"y": Y, "n": np.array(7)}, b'{"outputs":{"y":[2.5,3.0,4.5],"n":7}}'),
        ({"y": np.array(0.1, np.float32)}, b'{"outputs":0.1}'),
        ({"y": np.array(math.nan)}, b'{"outputs":NaN}'),
        ({"t": np.array(b"a", object)}, b'{"outputs":"a"}'),
    ],
)
def test_columns(outputs: dict[str, Any], expected: bytes) -> None:
    assert encode_columns(outputs) == expected


def test_scalar_has_no_rows() -> None:
    with pytest.raises(InvalidTensor, match="^Tensor name: y has no shape information $"):
        encode_rows({"y": np.array(1.0)})


def test_outputs_of_unequal_batch_have_no_rows() -> None:
    with pytest.raises(InvalidTensor, match="y has inconsistent batch size: 3 expecting: 2"):
        encode_rows({"x": Y[:2], "y": Y})


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [(np.float16, "half"), (ml_dtypes.bfloat16, "bfloat16"), (np.complex64, "complex64")],
)
def test_type_without_a_form_in_json_is_refused(dtype: Any, shown: str) -> None:
    with pytest.raises(
        InvalidTensor, match=f"^Failed to write JSON value for tensor type: {shown}$"
    ):
        encode_columns({"y": np.zeros(1, dtype)})
