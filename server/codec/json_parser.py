"""JSON text ↔ Python values, with the tolerance that TensorFlow Serving has."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

import orjson

from server.codec import numeric_arrays, rapidjson_fallback
from server.codec.numeric_arrays import Numbers
from tpuserve.errors import InvalidJson

Json: TypeAlias = Any

_SHOWN_CHARACTERS = 256
# The standard library's parser is made of C too, and takes NaN.
_TOLERANT = json.JSONDecoder(object_pairs_hook=lambda pairs: _first_of_each(pairs))
# What it takes otherwise than RapidJSON: surrogates, and numbers beyond 64 bits or a double.
_RARE = re.compile(rb"\\u[dD][89a-fA-F]|[eE]\+?[0-9]{3}|[0-9]{20}")
_KEY = re.compile(rb'"[ \t\r\n]*:')
_PLACE = re.compile(r"@[0-9]+")
_SHOWN = json.JSONEncoder(ensure_ascii=False, indent=4, default=lambda each: each.tolist())


def parse(body: bytes) -> Json:
    """The value that a request body holds, to any depth.

    NaN, Infinity and Inf are numbers, what follows the value is ignored, and of a key that comes
    twice the first counts. A large array of numbers is left as `Numbers`.

    Raises:
      InvalidJson: no JSON.
    """
    if not body:
        raise InvalidJson("JSON Parse error: The document is empty")
    taken = numeric_arrays.take_out(body) if len(body) >= numeric_arrays.MIN_BYTES else None
    if taken is not None:
        try:
            return _put_back(_parse(taken[0]), taken[1])
        except (InvalidJson, RecursionError):
            pass  # the numbers were part of a string, or the document is at fault
    return _parse(body)


def show(value: Json) -> str:
    """A value as an error text has it: JSON again, cut where it gets long."""
    if not isinstance(value, (list, dict, Numbers)):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    shown = "".join(_pieces(value))
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[:_SHOWN_CHARACTERS] + "..."


def type_name(value: Json) -> str:
    """The JSON type of a value, as an error text has it: "String", "Array"."""
    names = {dict: "Object", list: "Array", str: "String", bool: "Boolean", type(None): "Null"}
    return "Array" if type(value) is Numbers else names.get(type(value), "Number")


def _parse(body: bytes) -> Json:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_tolerantly(body)
    # Of equal keys orjson keeps the last. Nearly all documents show by their colons that all
    # differ; one in a string has no quotation mark before it, unless that is escaped.
    if type(value) is dict and body.count(b":") == len(value):
        return value
    try:
        is_plain = sum(1 for _ in _KEY.finditer(body)) == _keys(value)
    except RecursionError:
        is_plain = False
    return value if is_plain else _parse_tolerantly(body)


def _parse_tolerantly(body: bytes) -> Json:
    if not _RARE.search(body):
        try:
            return _TOLERANT.raw_decode(body.decode().lstrip(" \t\r\n"))[0]
        except (ValueError, RecursionError):
            pass  # it may still be one, for the parser that knows all of it
    return rapidjson_fallback.parse(body)


def _keys(value: Json) -> int:
    # Of the objects in a document, as deep as requests have them.
    if type(value) is dict:
        return len(value) + sum(_keys(each) for each in value.values())
    if type(value) is list and value and type(value[0]) in (dict, list):
        return sum(_keys(each) for each in value)
    return 0


def _first_of_each(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _put_back(value: Json, taken: list[Numbers]) -> Json:
    if type(value) is str and _PLACE.fullmatch(value):
        return taken[int(value[1:])]
    if type(value) is list:
        return [_put_back(each, taken) for each in value]
    if type(value) is dict:
        return {key: _put_back(each, taken) for key, each in value.items()}
    return value


def _pieces(value: Json) -> Iterator[str]:
    # As few of them as are shown: each holds a character at least.
    return islice(_SHOWN.iterencode(value), _SHOWN_CHARACTERS + 1)
