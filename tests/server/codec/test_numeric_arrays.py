"""Extracted arrays are decoded exactly as the general parser decodes them."""

from typing import Any

import numpy as np
import orjson
import pytest

from server.codec import json_parser, numeric_arrays, requests
from server.codec.json_to_array import decode_value
from server.codec.numeric_arrays import RawNumericArray
from tests.server.fakes import spec
from tpuserve.errors import InvalidInput, InvalidTensor
from tpuserve.saved_model.signature import Signature

LARGE = np.arange(2400, dtype=np.float32).reshape(20, 30, 4) / 8
ROWS = orjson.dumps(LARGE.tolist())


def decode(body: bytes, dtype: str = "float32") -> Any:
    signature = Signature({"x": spec(dtype)}, {})
    try:
        return requests.decode_inputs(json_parser.parse_json(body), signature)["x"]
    except InvalidInput as error:
        return str(error)


def decode_without_extraction(body: bytes, monkeypatch: pytest.MonkeyPatch, dtype: str) -> Any:
    monkeypatch.setattr(json_parser, "extract_numeric_arrays", lambda body: None)
    return decode(body, dtype)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": %s}' % ROWS,
        b' {"signature_name": "", "inputs" : %s } and more' % ROWS,
        b'{"inputs": {"x": %s}}' % ROWS,
        b'{"instances": [{"x": %s}]}' % ROWS,
    ],
)
def test_large_array_is_extracted_from_every_position(body: bytes) -> None:
    extracted = numeric_arrays.extract_numeric_arrays(body)
    assert extracted is not None
    assert len(extracted[0]) < 100
    assert np.array_equal(decode(body).reshape(LARGE.shape), LARGE)


PADDING = b"1," * 1200


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "int64", "uint64"])
@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        b"[%s1]" % PADDING,
        b"[[%s1],[%s1]]" % (PADDING, PADDING),
        b"[[%s1],[%s1,2]]" % (PADDING, PADDING),
        b"[%s[1]]" % PADDING,
        b"[[%s1],[]]" % PADDING,
        b"[" + b"[]," * 1200 + b"[]]",
        b"[" + b"[1]," * 1200 + b"[]]",
        b"[" + b"[1,2]," * 1200 + b"[[1],2]]",
        b"[%s1.0]" % PADDING,
        b"[%s300]" % PADDING,
        b"[%s2147483648]" % PADDING,
        b"[%s18446744073709551616]" % PADDING,
        b"[%s1e400]" % PADDING,
        b"[%s1e300]" % PADDING,
        b"[%s-0,-0.0]" % PADDING,
        b"[%s01]" % PADDING,
        b"[%s1 2]" % PADDING,
        b"[%s" % PADDING,
        b"[%s1]]" % PADDING,
        b"[%s1],[1]" % PADDING,
        b"[%s1e]" % PADDING,
        b"[%sNaN]" % PADDING,
        b"[%snull]" % PADDING,
        b'"[%s1]"' % PADDING,
        b'["[%s1]"]' % PADDING,
        b'"@0", "a": [%s1]' % PADDING,
        b'"\\u00400", "a": [%s1]' % PADDING,
        b'[%s1], "inputs": 5' % PADDING,
        b"[" * 3000 + b"]" * 3000,
        b"[[%s1],%s null %s]" % (PADDING, b"[" * 400, b"]" * 400),
        b"[%s [%s1], null %s]" % (b"[null," * 20, PADDING, b"]" * 20),
        b"[" * 2000 + b"1" + b"]" * 2000,
        b"[%s [%s1], null %s]" % (b"[null," * 490, PADDING, b"]" * 490),
        b"[%s %s%s1%s, null %s]" % (b"[null," * 490, b"[" * 21, PADDING, b"]" * 21, b"]" * 490),
    ],
)
@pytest.mark.parametrize("key", [b"instances", b"inputs"])
def test_every_array_is_decoded_or_refused_as_without_extraction(
    text: bytes, dtype: str, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"%s": %s}' % (key, text)
    fast = decode(body, dtype)
    slow = decode_without_extraction(body, monkeypatch, dtype)
    assert type(fast) is type(slow)
    if isinstance(slow, str):
        assert fast == slow
    else:
        np.testing.assert_array_equal(fast, slow, strict=True)


def test_extracted_array_is_formatted_and_named_as_an_array() -> None:
    value = json_parser.parse_json(ROWS)
    assert isinstance(value, RawNumericArray)
    assert json_parser.json_type_name(value) == "Array"
    assert json_parser.format_for_error(value).startswith("[\n    [\n        [\n            0.0,\n")


def nest(text: bytes, levels: int) -> bytes:
    return b"[" * levels + text + b"]" * levels


ROW = orjson.dumps(LARGE.ravel().tolist())
OTHER_ROW = orjson.dumps(LARGE.ravel()[1:].tolist())


def test_arrays_in_lists_are_stacked() -> None:
    array = decode(b'{"instances": [[%s, %s], [%s, %s]]}' % ((ROW,) * 4))
    np.testing.assert_array_equal(array, np.broadcast_to(LARGE.ravel(), (2, 2, 2400)), strict=True)


def test_an_array_has_at_most_32_dimensions() -> None:
    array = decode(b'{"inputs": %s}' % nest(b"%s, %s" % (ROW, ROW), 31))
    assert array.shape == (*(1,) * 30, 2, 2400)
    assert decode(b'{"inputs": %s}' % nest(b"%s, %s" % (ROW, ROW), 32)) == (
        "Encountered list at unexpected level: 32 expected < 32"
    )


def test_dimension_of_the_rows_counts_besides_those_of_their_arrays() -> None:
    body = b'{"instances": [{"x": %s}, {"x": %s}]}'
    row = nest(ROW, 30)
    assert decode(body % (row, row)).shape == (2, *(1,) * 30, 2400)
    row = nest(ROW, 31)
    assert decode(body % (row, row)) == "Encountered list at unexpected level: 32 expected < 32"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((ROW, OTHER_ROW), "Expecting tensor size: 2400 but got: 2399"),
        ((OTHER_ROW, ROW), "Expecting tensor size: 2399 but got: 2400"),
    ],
)
def test_rows_of_different_lengths_are_refused_as_lists(
    rows: tuple[bytes, bytes], message: str
) -> None:
    assert message in decode(b'{"instances": [{"x": %s}, {"x": %s}]}' % rows)


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        (b"[%s, %s]" % (ROW, OTHER_ROW), "float32", "unexpected size: 2399 at level: 1"),
        (b"[%s, 1.5]" % ROW, "float32", "found at incorrect level: 1 expected: 2"),
        (b"[[%s], %s]" % (ROW, ROW), "float32", "unexpected size: 2400 at level: 1"),
        (b"[%s, %s]" % (ROW, ROW), "bool", "is not of expected type: bool"),
        (b"[%s, %s]" % (ROW, ROW), "int32", "is not of expected type: int32"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused_as_lists(
    text: bytes, dtype: str, message: str
) -> None:
    assert message in decode(b'{"inputs": %s}' % text, dtype)


def extract(text: bytes) -> RawNumericArray:
    extracted = numeric_arrays.extract_numeric_arrays(b'{"x": %s}' % text)
    assert extracted is not None
    (array,) = extracted[1]
    return array


def refuse(value: Any, dtype: str) -> str:
    with pytest.raises(InvalidTensor) as error:
        decode_value(value, dtype)
    return str(error.value)


def test_rows_in_one_array_are_refused_as_lists() -> None:
    assert decode(b'{"instances": %s}' % ROW, "bool") == (
        "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
        "JSON Value: 0.0 Type: Number is not of expected type: bool"
    )
    document = json_parser.parse_json(b'{"instances": %s}' % ROW)
    for names in ((), ("x", "y")):
        signature = Signature(dict.fromkeys(names, spec("float32")), {})
        with pytest.raises(InvalidInput, match="^instances is a plain list"):
            requests.decode_inputs(document, signature)


def test_stacked_arrays_have_at_most_32_dimensions() -> None:
    for levels, rank in ((29, 32), (30, 33), (31, 34)):
        value: Any = [extract(ROWS), extract(ROWS)]
        for _ in range(levels - 1):
            value = [value]
        if rank <= 32:
            assert decode_value(value, "float32").shape == (*(1,) * 28, 2, 20, 30, 4)
        else:
            assert refuse(value, "float32") == (
                "Encountered list at unexpected level: 32 expected < 32"
            )


def test_stacked_arrays_that_do_not_fit_are_refused_as_lists() -> None:
    assert refuse([1.5, extract(ROW)], "float32") == (
        "Encountered list at unexpected level: 1 expected < 1"
    )
    assert refuse([extract(ROW), 1.5], "float32") == (
        "JSON Value: 1.5 found at incorrect level: 1 expected: 2"
    )
    assert refuse([extract(ROW), extract(OTHER_ROW)], "float32") == (
        "Encountered list at unexpected size: 2399 at level: 1 expected size: 2400"
    )
    assert refuse([extract(ROW), extract(ROW)], "int32") == (
        "JSON Value: 0.0 Type: Number is not of expected type: int32"
    )
