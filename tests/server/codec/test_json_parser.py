"""JSON is parsed with TensorFlow Serving's tolerance, up to a bounded nesting."""

import math
from typing import Any

import pytest

from server.codec.json_parser import MAX_NESTING, format_for_error, json_type_name, parse_json
from tpuserve.errors import InvalidJson

NAN = math.nan


def test_nan_and_infinity_are_numbers() -> None:
    nan, *infinities = parse_json(b"[NaN, Infinity, -Infinity, Inf, -Inf]")
    assert math.isnan(nan)
    assert infinities == [math.inf, -math.inf, math.inf, -math.inf]
    assert math.isnan(parse_json(b"[-NaN]")[0])


def test_special_numbers_in_strings_are_text() -> None:
    document = b'{"a\\"Inf": ["Inf", "-NaN", "NaN", Inf], "b": "\\\\"}'
    expected = {'a"Inf': ["Inf", "-NaN", "NaN", math.inf], "b": "\\"}
    assert parse_json(document) == expected


def test_text_after_the_value_is_ignored() -> None:
    assert parse_json(b' {"inputs": 1} and more') == {"inputs": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The document is empty"),
        (b"  ", "The document is empty"),
        (b"\xef\xbb\xbf{}", "Expecting value at offset: 0"),
        (b'{"inputs": }', "Expecting value at offset: 11"),
        (b"not json", "Expecting value at offset: 0"),
        (b"-x", "Expecting value at offset: 0"),
        (b"\xff\xfe", "Expecting value at offset: 0"),
        (b'["\xc3\xbc", x]', "Expecting value at offset: 7"),
        (b"[01]", "Expecting ',' delimiter at offset: 2"),
        (b"[1 2]", "Expecting ',' delimiter at offset: 3"),
        (b"[NaN5]", "Expecting ',' delimiter at offset: 4"),
        (b"[Infi]", None),
        (b"[1,]", None),
        (b"[" * 3, "Expecting value at offset: 3"),
        (b'{"a": 1 "b": 2}', "Expecting ',' delimiter at offset: 8"),
        (b"{a: 1}", "Expecting property name enclosed in double quotes at offset: 1"),
        (b'{"a": 1,}', None),
        (b'{"a" 1}', "Expecting ':' delimiter at offset: 5"),
        (b'["a', "Unterminated string starting at at offset: 1"),
        (b'["a\n"]', "Invalid control character at at offset: 3"),
        (b'["\\x"]', None),
        (b'["\\u12g4"]', None),
        (b'["\\ud800"]', "The surrogate pair in string is invalid"),
        (b'["\\udc00"]', "The surrogate pair in string is invalid"),
        (b'["\\\\\\ud800\\n"]', "The surrogate pair in string is invalid"),
        (b'["\\udc00\\ud800"]', "The surrogate pair in string is invalid"),
        (b"[1.]", None),
        (b"[1e]", None),
        (b"[1e400]", "Number too big to be stored in double"),
        (b"9" * 5000, "Number too big to be stored in double"),
    ],
)
def test_invalid_json_is_refused_with_the_reason(body: bytes, text: str | None) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse_json(body)
    assert str(caught.value).startswith("JSON Parse error: ")
    if text is not None:
        assert str(caught.value) == "JSON Parse error: " + text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', {"a": 1, "b": 2}),
        (b'{"a": 1, "b" : 2, "a": 3}', {"a": 1, "b": 2}),
        (b'{"a": 1, "\\u0061": 2}', {"a": 1}),
        (b'[{"a": [{"b": 1, "b": 2}]}]', [{"a": [{"b": 1}]}]),
        (b'[1, {"a": 1, "a": 2}]', [1, {"a": 1}]),
        (b'{"a": "\\":", "b": ":"}', {"a": '":', "b": ":"}),
        (b'["\xc3\xbc", "\\ud83d\\ude00", "\\/\\b"] x', ["ü", "\U0001f600", "/\b"]),
        (b'["\\\\ud800", "\\\\\\\\udc00"] x', ["\\ud800", "\\\\udc00"]),
        (b"[1, 1.0, -0, 1E2] x", [1, 1.0, 0, 100.0]),
        (
            b"[Inf, -Inf, 18446744073709551615, -9223372036854775809]",
            [math.inf, -math.inf, 2**64 - 1, -float(2**63)],
        ),
        (b"[18446744073709551616, -9223372036854775808]", [float(2**64), -(2**63)]),
        (b"[18446744073709551616, -9223372036854775808] x", [float(2**64), -(2**63)]),
        (b" [ [ ] , { } , [ [ 1 ] , null ] ] x", [[], {}, [[1], None]]),
        (b'{"a": [1, {"b": {}}], "c": true} x', {"a": [1, {"b": {}}], "c": True}),
    ],
)
def test_valid_json_is_parsed_as_rapidjson_parses_it(body: bytes, expected: Any) -> None:
    value = parse_json(body)
    assert value == expected
    assert repr(value) == repr(expected)


def test_bytes_that_are_not_utf8_are_kept() -> None:
    (text,) = parse_json(b'["\xff\xc3\xbc"]')
    assert text.encode("utf-8", "surrogateescape") == b"\xff\xc3\xbc"


def nest(levels: int, opening: bytes, closing: bytes, innermost: bytes = b"1") -> bytes:
    return opening * levels + innermost + closing * levels


@pytest.mark.parametrize("innermost", [b"1", b"NaN", b'"[[["'])
@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'["]", ', b"]")]
)
def test_deepest_allowed_nesting_is_parsed(
    opening: bytes, closing: bytes, innermost: bytes
) -> None:
    value = parse_json(nest(MAX_NESTING, opening, closing, innermost))
    depth = 0
    while isinstance(value, (list, dict)):
        value = value[-1] if isinstance(value, list) else value["a"]
        depth += 1
    assert depth == MAX_NESTING


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 1000, 1100, 5000, 500_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("innermost", [b"1", b"NaN"])
def test_deeper_nesting_is_refused(
    levels: int, opening: bytes, closing: bytes, innermost: bytes
) -> None:
    with pytest.raises(InvalidJson, match="nested more than 512 levels deep"):
        parse_json(nest(levels, opening, closing, innermost))


def test_brackets_in_strings_and_siblings_are_no_nesting() -> None:
    body = b'{"a": "%s", "b": [%s []], "c": "\\"%s"}' % (b"[" * 600, b"[]," * 600, b"{" * 600)
    assert len(parse_json(body)["b"]) == 601
    closed = nest(300, b"[", b"]")
    assert parse_json(b'["%s", %s, %s]' % (b"]" * 600, closed, closed))[0] == "]" * 600


def test_deep_nesting_after_long_siblings_is_refused() -> None:
    siblings = b"[]," * (1 << 19)
    with pytest.raises(InvalidJson, match="nested more than 512 levels deep"):
        parse_json(b'["", %s%s]' % (siblings, nest(MAX_NESTING, b"[", b"]")))


def test_formatted_values_are_cut() -> None:
    assert format_for_error("ü") == '"ü"'
    assert len(format_for_error(list(range(1000)))) == 256 + len("...")
    assert format_for_error({"a": [1, NAN]}) == '{\n    "a": [\n        1,\n        NaN\n    ]\n}'
    assert len(format_for_error(parse_json(nest(MAX_NESTING, b"[", b"]")))) == 256 + len("...")


def test_type_names_are_those_of_json() -> None:
    values: list[Any] = [None, True, 1, 1.5, "a", [], {}]
    names = ["Null", "Boolean", "Number", "Number", "String", "Array", "Object"]
    assert [json_type_name(value) for value in values] == names
