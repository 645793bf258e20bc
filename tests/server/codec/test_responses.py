"""Outputs are encoded in TensorFlow Serving's layout."""

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from server.codec.responses import encode_columnar_format, encode_row_format
from tests.server.peak_memory import measure_bytes
from tpuserve.errors import InvalidTensor

Y = np.array([2.5, 3.0, 4.5], np.float32)
TEXT = np.array([b"a", b"\xff"], object)


ROWS = b'{\n    "predictions": [%s\n    ]\n}'


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"y": Y}, ROWS % b"2.5, 3.0, 4.5"),
        ({"y": Y[:2, None]}, ROWS % b"[2.5], [3.0]"),
        ({"text_bytes": TEXT}, ROWS % b'{"b64": "YQ=="}, {"b64": "/w=="}'),
        ({"text": TEXT}, ROWS % b'"a", "\xff"'),
        ({"text": np.array([b'"\\\n\x1f/'], object)}, ROWS % rb'"\"\\\n\u001F/"'),
        ({"y": np.array([0.1, math.nan], np.float32)}, ROWS % b"0.1, NaN"),
        ({"y": np.array([-math.inf, math.inf])}, ROWS % b"-Infinity, Infinity"),
        ({"y": np.asfortranarray([[1, 2], [3, 4]])}, ROWS % b"[1, 2], [3, 4]"),
        ({"y": np.zeros((0, 2), np.int32)}, b'{\n    "predictions": []\n}'),
        ({"y": np.zeros((2, 0), np.float32)}, ROWS % b"[], []"),
        ({"y": np.zeros((0, 2)), "z": np.zeros(0)}, b'{\n    "predictions": []\n}'),
    ],
)
def test_row_format(outputs: dict[str, Any], expected: bytes) -> None:
    assert encode_row_format(outputs) == expected


def test_rows_of_several_outputs_are_objects_with_their_keys_in_order() -> None:
    outputs: dict[str, Any] = {
        "z": np.arange(8, dtype=np.float32).reshape(2, 2, 2),
        "n": np.array([7, 8], np.uint8),
        "e": np.zeros((2, 0)),
        "b": np.array([True, False]),
        "t": np.array([[b"a"], [b"b"]], object),
    }
    assert (
        encode_row_format(outputs).decode()
        == """{
    "predictions": [
        {
            "b": true,
            "e": [],
            "n": 7,
            "t": ["a"],
            "z": [[0.0, 1.0], [2.0, 3.0]]
        },
        {
            "b": false,
            "e": [],
            "n": 8,
            "t": ["b"],
            "z": [[4.0, 5.0], [6.0, 7.0]]
        }
    ]
}"""
    )


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"y": Y}, b'{\n    "outputs": [2.5, 3.0, 4.5\n    ]\n}'),
        (
            {"y": Y, "n": np.array(7)},
            b'{\n    "outputs": {\n        "n": 7,\n        "y": [2.5, 3.0, 4.5]\n    }\n}',
        ),
        ({"y": np.array(0.1, np.float32)}, b'{\n    "outputs": 0.1\n}'),
        ({"y": np.array(math.nan)}, b'{\n    "outputs": NaN\n}'),
        ({"t": np.array(b"a", object)}, b'{\n    "outputs": "a"\n}'),
        ({"e": np.zeros((2, 0, 3))}, b'{\n    "outputs": [[], []\n    ]\n}'),
    ],
)
def test_columns(outputs: dict[str, Any], expected: bytes) -> None:
    assert encode_columnar_format(outputs) == expected


def test_scalar_has_no_rows() -> None:
    with pytest.raises(InvalidTensor, match="^Tensor name: y has no shape information $"):
        encode_row_format({"y": np.array(1.0)})


def test_outputs_of_unequal_batch_have_no_rows() -> None:
    with pytest.raises(InvalidTensor, match="y has inconsistent batch size: 3 expecting: 2"):
        encode_row_format({"x": Y[:2], "y": Y})


@pytest.mark.parametrize(
    ("dtype", "type_name"),
    [(np.float16, "half"), (ml_dtypes.bfloat16, "bfloat16"), (np.complex64, "complex64")],
)
def test_type_that_json_cannot_represent_is_refused(dtype: Any, type_name: str) -> None:
    with pytest.raises(
        InvalidTensor, match=f"^Failed to write JSON value for tensor type: {type_name}$"
    ):
        encode_columnar_format({"y": np.zeros(1, dtype)})


@pytest.mark.parametrize("names", ["y", "yz"])
@pytest.mark.parametrize("encode", [encode_row_format, encode_columnar_format])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_encoding_a_large_output_takes_little_more_memory_than_its_text(
    names: str, encode: Any, dtype: Any
) -> None:
    outputs = {name: np.arange(600_000).reshape(300, 2, 1000).astype(dtype) for name in names}
    sizes: list[int] = []
    peak = measure_bytes(lambda: sizes.append(len(encode(outputs))))
    assert peak < 1.5 * sizes[0]


@pytest.mark.parametrize(
    "shape", [(20_000,), (3, 20_000), (7_000, 3), (2, 100, 100), (1, 1, 20_000)]
)
def test_large_outputs_are_encoded_like_small_ones(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    for name, output in (("y", array), ("z", array / 8)):
        assert json.loads(encode_row_format({name: output})) == {"predictions": output.tolist()}
        for outputs in ({name: output}, {name: output, "x": output}):
            decoded = json.loads(encode_columnar_format(outputs))["outputs"]
            assert (decoded if len(outputs) == 1 else decoded[name]) == output.tolist()
        rows = json.loads(encode_row_format({name: output, "x": output}))["predictions"]
        assert [row[name] for row in rows] == output.tolist()
        assert b"],[" not in encode_row_format({name: output})
