"""JSON values are converted exactly, or refused."""

import math
from typing import Any

import numpy as np
import pytest

from server.codec.json_to_array import decode_value
from tpuserve.errors import Code, CodedError, InvalidTensor


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", [1, 2.0, 5.003], np.array([1, 2, 5.003], np.float32)),
        ("float32", 1435774380, np.array(1435774336, np.float32)),
        ("float32", [1.79769e308, -2.22507e-308], np.array([math.inf, 0], np.float32)),
        ("float64", [1.0, 2, 0.662], np.array([1, 2, 0.662])),
        ("int32", [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], np.int32)),
        ("int8", [-128, 127], np.array([-128, 127], np.int8)),
        ("int8", [300, -129], np.array([44, 127], np.int8)),
        ("uint8", [-1, 256], np.array([255, 0], np.uint8)),
        ("int64", [2**53 + 1], np.array([2**53 + 1], np.int64)),
        ("int64", [-(2**63), 2**63 - 1], np.array([-(2**63), 2**63 - 1], np.int64)),
        ("uint64", [2**64 - 1], np.array([2**64 - 1], np.uint64)),
        ("bool", [True, False], np.array([True, False])),
        ("float32", [], np.zeros((0,), np.float32)),
        ("float32", [[], []], np.zeros((2, 0), np.float32)),
        ("int32", [[[1], [2], [3]]], np.array([[[1], [2], [3]]], np.int32)),
    ],
)
def test_value_is_converted_exactly(dtype: str, value: Any, expected: np.ndarray[Any, Any]) -> None:
    array = decode_value(value, dtype)
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(array, expected)


def test_text_and_base64_both_make_bytes() -> None:
    array = decode_value([["ü", {"b64": "aGVsbG8="}]], "string")
    assert array.tolist() == [["ü".encode(), b"hello"]]
    assert array.dtype == object


def test_base64_may_lack_its_padding() -> None:
    assert decode_value({"b64": "aGVsbG8"}, "string").item() == b"hello"


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("float32", [1.0, "a"], '"a" Type: String is not of expected type: float'),
        ("float32", [1.5, True], "true Type: Boolean is not of expected type: float"),
        ("float64", [None], "null Type: Null is not of expected type: double"),
        ("float32", [{"b64": "aGk="}], "Type: Object is not of expected type: float"),
        ("float32", [1, 2.5, "x"], "Type: String is not of expected type: float"),
        ("string", [{"b64": "aGk=", "x": 1}], "Type: Object is not of expected type: string"),
        ("int32", [1, 1.0], "1.0 Type: Number is not of expected type: int32"),
        ("int32", [True], "true Type: Boolean is not of expected type: int32"),
        ("int8", [1, 2**31], "2147483648 Type: Number is not of expected type: int8"),
        ("uint64", [-1], "-1 Type: Number is not of expected type: uint64"),
        ("int64", [2**63], "9223372036854775808 Type: Number is not of expected type: int64"),
        ("bool", [1], "1 Type: Number is not of expected type: bool"),
        ("string", [5], "5 Type: Number is not of expected type: string"),
        ("string", [{"b65": "a"}], "Type: Object is not of expected type: string"),
    ],
)
def test_value_of_another_type_is_refused(dtype: str, value: Any, text: str) -> None:
    with pytest.raises(InvalidTensor) as caught:
        decode_value(value, dtype)
    assert text in str(caught.value)
    assert str(caught.value).startswith("JSON Value: ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([[1, 2], [3]], "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ([[1], [[2]]], "Encountered list at unexpected level: 2 expected < 2"),
        ([1, [2]], "Encountered list at unexpected level: 1 expected < 1"),
        ([[1], 2], "JSON Value: 2 found at incorrect level: 1"),
        ([[], [1]], "Encountered list at unexpected size: 1 at level: 1 expected size: 0"),
        ([[[1]], [2]], "JSON Value: 2 found at incorrect level: 2"),
    ],
)
def test_ragged_lists_are_refused(value: Any, text: str) -> None:
    with pytest.raises(InvalidTensor) as caught:
        decode_value(value, "float32")
    assert str(caught.value).startswith(text)


def test_more_levels_than_an_array_can_have_are_refused() -> None:
    value: Any = 1.0
    for _ in range(100):
        value = [value]
    with pytest.raises(InvalidTensor, match="unexpected level"):
        decode_value(value, "float32")


def test_bad_base64_is_refused() -> None:
    with pytest.raises(InvalidTensor, match="^Unable to base64 decode$"):
        decode_value({"b64": "a*b"}, "string")


def test_base64_with_another_character_is_refused_though_the_rest_is_base64() -> None:
    assert decode_value({"b64": "aGk="}, "string").item() == b"hi"
    with pytest.raises(InvalidTensor, match="^Unable to base64 decode$"):
        decode_value({"b64": "aG****k="}, "string")


def test_bytes_that_are_not_utf8_are_kept() -> None:
    assert decode_value("\udcff\u00fc", "string").item() == b"\xff\xc3\xbc"


def test_base64_may_be_broken_into_lines() -> None:
    assert decode_value({"b64": "aGVs\nbG8="}, "string").item() == b"hello"


@pytest.mark.parametrize(
    ("dtype", "type_name"),
    [("float16", "half"), ("bfloat16", "bfloat16"), ("uint16", "uint16")],
)
def test_type_that_json_cannot_represent_is_unsupported(dtype: str, type_name: str) -> None:
    with pytest.raises(
        CodedError,
        match=f"^Conversion of JSON Value: 1.0 to type: {type_name}$",
        check=lambda error: error.code is Code.UNIMPLEMENTED,
    ):
        decode_value([1.0, 2.0], dtype)
