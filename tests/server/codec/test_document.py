"""JSON is read with TensorFlow Serving's tolerance."""

import math
from typing import Any

import pytest

from server.codec.document import parse, show, type_name
from tpuserve.errors import InvalidJson


def test_nan_and_infinity_are_numbers() -> None:
    first, *rest = parse(b"[NaN, Infinity, -Infinity]")
    assert math.isnan(first)
    assert rest == [math.inf, -math.inf]


def test_what_follows_the_value_is_ignored() -> None:
    assert parse(b' {"inputs": 1} and more') == {"inputs": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "JSON Parse error: The document is empty at offset: 0"),
        (b"  ", "JSON Parse error: The document is empty at offset: 2"),
        (b'{"inputs": }', "JSON Parse error: Expecting value at offset: 11"),
        (b"\xff\xfe", "JSON Parse error: Invalid encoding in string at offset: 0"),
        (b'"\xc3\xbc" x', None),
        (b'["\xc3\xbc", x]', "JSON Parse error: Expecting value at offset: 7"),
        (b"9" * 5000, "JSON Parse error: Number too big to be stored"),
    ],
)
def test_what_is_no_json_is_told_with_its_place(body: bytes, text: str | None) -> None:
    if text is None:
        assert parse(body) == "ü"
        return
    with pytest.raises(InvalidJson) as caught:
        parse(body)
    assert str(caught.value) == text


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_half_a_million_levels_are_refused_and_not_crashed_on(opening: bytes) -> None:
    with pytest.raises(InvalidJson, match="nested too deeply"):
        parse(opening * 500_000)


def test_shown_values_are_cut() -> None:
    assert show("ü") == '"ü"'
    assert len(show(list(range(1000)))) == 256 + len("...")


def test_type_names_are_those_of_json() -> None:
    values: list[Any] = [None, True, 1, 1.5, "a", [], {}]
    names = ["Null", "Boolean", "Number", "Number", "String", "Array", "Object"]
    assert [type_name(value) for value in values] == names
