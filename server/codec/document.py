"""JSON text ↔ Python values, with the tolerance that TensorFlow Serving has."""

import json
from typing import Any, TypeAlias

import orjson

from tpuserve.errors import InvalidJson

Json: TypeAlias = Any

_SHOWN_CHARACTERS = 256
_WHITESPACE = " \t\n\r"
_TOLERANT = json.JSONDecoder()


def parse(body: bytes) -> Json:
    """The value that a request body holds.

    NaN and Infinity are numbers, and what follows the value is ignored.

    Raises:
      InvalidJson: no JSON, not UTF-8, or nested deeper than can be read.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_tolerantly(body)


def show(value: Json) -> str:
    """A value as an error text has it: JSON again, cut where it gets long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "[" * _SHOWN_CHARACTERS
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def type_name(value: Json) -> str:
    """The JSON type of a value, as an error text has it: "String", "Array"."""
    names = {dict: "Object", list: "Array", str: "String", bool: "Boolean", type(None): "Null"}
    return names.get(type(value), "Number")


def _parse_tolerantly(body: bytes) -> Json:
    # orjson refuses NaN, Infinity and nesting beyond 1024.
    try:
        text = body.decode("utf-8").lstrip(_WHITESPACE)
    except UnicodeDecodeError as error:
        raise InvalidJson(
            f"JSON Parse error: Invalid encoding in string at offset: {error.start}"
        ) from error
    if not text:
        raise InvalidJson(f"JSON Parse error: The document is empty at offset: {len(body)}")
    try:
        value, _ = _TOLERANT.raw_decode(text)
    except json.JSONDecodeError as error:
        offset = len(body) - len(text.encode()) + len(text[: error.pos].encode())
        raise InvalidJson(f"JSON Parse error: {error.msg} at offset: {offset}") from error
    except RecursionError as error:
        raise InvalidJson("JSON Parse error: The document is nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidJson("JSON Parse error: Number too big to be stored") from error
    return value
