"""JSON is read with TensorFlow Serving's tolerance."""

import math
from typing import Any

import pytest

from server.codec import rapidjson_fallback
from server.codec.json_parser import parse, show, type_name
from tpuserve.errors import InvalidJson

NAN = math.nan


def test_nan_and_infinity_are_numbers() -> None:
    first, *rest = parse(b"[NaN, Infinity, -Infinity]")
    assert math.isnan(first)
    assert rest == [math.inf, -math.inf]


def test_what_follows_the_value_is_ignored() -> None:
    assert parse(b' {"inputs": 1} and more') == {"inputs": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The document is empty"),
        (b"  ", "The document is empty. at offset: 2"),
        (b"\xef\xbb\xbf{}", "Invalid value. at offset: 0"),
        (b'{"inputs": }', "Invalid value. at offset: 11"),
        (b"not json", "Invalid value. at offset: 1"),
        (b"-x", "Invalid value. at offset: 1"),
        (b"\xff\xfe", "Invalid value. at offset: 0"),
        (b'["\xc3\xbc", x]', "Invalid value. at offset: 7"),
        (b"[01]", "Missing a comma or ] after an array element. at offset: 2"),
        (b"[1 2]", "Missing a comma or ] after an array element. at offset: 3"),
        (b"[1,]", "Invalid value. at offset: 3"),
        (b"[" * 3, "Invalid value. at offset: 3"),
        (b'{"a": 1 "b": 2}', "Missing a comma or } after an object member. at offset: 8"),
        (b"{a: 1}", "Missing a name for object member. at offset: 1"),
        (b'{"a": 1,}', "Missing a name for object member. at offset: 8"),
        (b'{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
        (b'["a', "Missing a closing quotation mark in string. at offset: 1"),
        (b'["a\n"]', "Invalid encoding in string. at offset: 3"),
        (b'["\\x"]', "Invalid escape character in string. at offset: 2"),
        (b'["\\u12g4"]', "Incorrect hex digit after \\u escape in string. at offset: 2"),
        (b'["\\ud800"]', "The surrogate pair in string is invalid. at offset: 2"),
        (b'["\\udc00"]', "The surrogate pair in string is invalid. at offset: 2"),
        (b"[1.]", "Miss fraction part in number. at offset: 3"),
        (b"[1e]", "Miss exponent in number. at offset: 3"),
        (b"[1e400]", "Number too big to be stored in double. at offset: 1"),
        (b"9" * 5000, "Number too big to be stored in double. at offset: 0"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(body: bytes, text: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse(body)
    assert str(caught.value) == "JSON Parse error: " + text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', {"a": 1, "b": 2}),
        (b'{"a": 1, "b" : 2, "a": 3}', {"a": 1, "b": 2}),
        (b'[{"a": [{"b": 1, "b": 2}]}]', [{"a": [{"b": 1}]}]),
        (b'{"a": 1, "\\u0061": 2, "c": NaN5', None),
        (b'{"a": "\\":", "b": ":"}', {"a": '":', "b": ":"}),
        (b'["\xc3\xbc", "\\ud83d\\ude00", "\\/\\b"] x', ["ü", "\U0001f600", "/\b"]),
        (b"[1, 1.0, -0, 1E2] x", [1, 1.0, 0, 100.0]),
        (
            b"[Inf, -Inf, 18446744073709551615, -9223372036854775809]",
            [math.inf, -math.inf, 2**64 - 1, -float(2**63)],
        ),
        (b" [ [ ] , { } , [ [ 1 ] , null ] ] x", [[], {}, [[1], None]]),
        (b'{"a": [1, {"b": {}}], "c": true} x', {"a": [1, {"b": {}}], "c": True}),
    ],
)
def test_what_is_json_is_read_as_rapidjson_reads_it(body: bytes, expected: Any) -> None:
    if expected is None:
        with pytest.raises(InvalidJson):
            parse(body)
        return
    found = parse(body)
    assert found == expected
    assert repr(found) == repr(expected)
    assert rapidjson_fallback.parse(body) == expected


def test_bytes_that_are_no_utf8_are_kept() -> None:
    (text,) = parse(b'["\xff\xc3\xbc"]')
    assert text.encode("utf-8", "surrogateescape") == b"\xff\xc3\xbc"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_half_a_million_levels_are_read(opening: bytes, closing: bytes) -> None:
    value = parse(opening * 500_000 + b"1" + closing * 500_000)
    depth = 0
    while value != 1:
        (value,) = value if type(value) is list else value.values()
        depth += 1
    assert depth == 500_000


def test_shown_values_are_cut() -> None:
    assert show("ü") == '"ü"'
    assert len(show(list(range(1000)))) == 256 + len("...")
    assert show({"a": [1, NAN]}) == '{\n    "a": [\n        1,\n        NaN\n    ]\n}'


def test_type_names_are_those_of_json() -> None:
    values: list[Any] = [None, True, 1, 1.5, "a", [], {}]
    names = ["Null", "Boolean", "Number", "Number", "String", "Array", "Object"]
    assert [type_name(value) for value in values] == names
