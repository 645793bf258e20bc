"""Parses JSON with the tolerance that TensorFlow Serving's RapidJSON has."""

import json
import math
import re
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import orjson

from server.codec.numeric_arrays import MIN_BYTES, RawNumericArray, extract_numeric_arrays
from tpuserve.errors import InvalidJson

Json: TypeAlias = Any

MAX_NESTING = 512
"""The deepest nesting of arrays and objects in a document, in levels."""

# `extract_numeric_arrays` is used only if the rest of the document nests no deeper than this. An
# array has at most 32 dimensions, so that the rest and an array together stay far below
# `MAX_NESTING`.
_MAX_NESTING_AROUND_ARRAYS = 64
_MAX_SHOWN_CHARACTERS = 256
_SPACE = " \t\r\n"
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
# The number of decimal digits of 2^64 - 1. Longer integers are parsed as floats at once, because
# int() refuses texts of several thousand digits.
_MAX_INTEGER_DIGITS = 20
_KEY = re.compile(rb'"[ \t\r\n]*:')
_STRING = re.compile(rb'"[^"]*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_BRACKET_CHUNK_BYTES = 1 << 20
_PLACEHOLDER = re.compile(r"@[0-9]+")
# Matches Inf and -NaN, which RapidJSON accepts as numbers and Python's `json` module refuses.
_UNKNOWN_TO_JSON = re.compile(r"Inf(?!inity)|-NaN")
_NUMBERS_AND_QUOTES = re.compile(r'"|\\.|-NaN|Inf(?:inity)?', re.DOTALL)
# Matches an escape sequence. Group 1 matches the escape sequence of a surrogate without its other
# half.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F])|.)",
    re.DOTALL,
)
_ERROR_ENCODER = json.JSONEncoder(
    ensure_ascii=False, indent=4, default=lambda array: array.tolist()
)


def parse_json(body: bytes) -> Json:
    """Parse the first JSON value of a request body.

    As in RapidJSON, NaN, Infinity and Inf are numbers, text after the value is ignored, the
    first of several equal keys counts, and integers beyond 64 bits become floats. Bytes that
    are not UTF-8 become lone surrogates (PEP 383).

    Returns:
      None, bool, int, float, str, list or dict. A large array of numbers is a `RawNumericArray`.

    Raises:
      InvalidJson: The body does not begin with a JSON value, or nests too deep.
    """
    extracted = extract_numeric_arrays(body) if len(body) >= MIN_BYTES else None
    if extracted is not None:
        document, arrays = extracted
        try:
            return _insert_arrays(_parse(document, _MAX_NESTING_AROUND_ARRAYS), arrays)
        except InvalidJson:
            pass  # Parse the original body: it is invalid, or a string held the numbers.
    return _parse(body, MAX_NESTING)


def format_for_error(value: Json) -> str:
    """Format a value as JSON for an error text; cut the JSON after 256 characters."""
    if isinstance(value, (list, dict, RawNumericArray)):
        # Join only as many chunks as characters are shown: each chunk has at least one character.
        text = "".join(islice(_ERROR_ENCODER.iterencode(value), _MAX_SHOWN_CHARACTERS + 1))
    else:
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return text[:_MAX_SHOWN_CHARACTERS] + "..."


def json_type_name(value: Json) -> str:
    """Return the name of a value's JSON type in TensorFlow Serving's errors, such as "Array"."""
    names = {
        dict: "Object",
        list: "Array",
        RawNumericArray: "Array",
        str: "String",
        bool: "Boolean",
        type(None): "Null",
    }
    return names.get(type(value), "Number")


def _parse(body: bytes, max_nesting: int) -> Json:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_tolerantly(body, max_nesting)
    _check_nesting(body, max_nesting)
    # Parse a document with equal keys again, because orjson keeps the last of several equal keys,
    # and RapidJSON finds the first.
    return value if _has_unique_keys(body, value) else _parse_tolerantly(body, max_nesting)


def _parse_tolerantly(body: bytes, max_nesting: int) -> Json:
    """Parse as RapidJSON does, with Python's slower `json`, whose hooks treat keys and numbers."""
    text = body.decode("utf-8", "surrogateescape")
    if _UNKNOWN_TO_JSON.search(text):
        text = _rewrite_special_numbers(text)
    start = len(text) - len(text.lstrip(_SPACE))
    if start == len(text):
        raise _parse_error("The document is empty")
    try:
        value, end = _TOLERANT_DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        raise _parse_error(f"{error.msg} at offset: {offset}") from None
    except RecursionError:
        raise _too_deep(max_nesting) from None
    _check_nesting(text[:end].encode("utf-8", "surrogateescape"), max_nesting)
    if any(match[1] for match in _ESCAPE.finditer(text, 0, end)):
        raise _parse_error("The surrogate pair in string is invalid")
    return value


def _rewrite_special_numbers(text: str) -> str:
    """Replace Inf by Infinity and -NaN by NaN outside of strings."""
    is_in_string = False

    def rewrite(match: "re.Match[str]") -> str:
        nonlocal is_in_string
        token = match.group()
        if token == '"':
            is_in_string = not is_in_string
        elif not is_in_string:
            return {"Inf": "Infinity", "-NaN": "NaN"}.get(token, token)
        return token

    return _NUMBERS_AND_QUOTES.sub(rewrite, text)


def _check_nesting(document: bytes, max_nesting: int) -> None:
    """Raise InvalidJson if arrays and objects nest too deep in a valid document."""
    if document.count(b"[") + document.count(b"{") <= max_nesting:
        return
    without_escapes = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = _STRING.sub(b"", without_escapes).translate(None, _NOT_BRACKETS)
    depth = 0
    for start in range(0, len(brackets), _BRACKET_CHUNK_BYTES):
        chunk = np.frombuffer(brackets[start : start + _BRACKET_CHUNK_BYTES], np.uint8)
        is_opening = (chunk == ord("[")) | (chunk == ord("{"))
        depths = depth + np.cumsum(np.where(is_opening, 1, -1))
        if depths.max() > max_nesting:
            raise _too_deep(max_nesting)
        depth = int(depths[-1])


def _has_unique_keys(document: bytes, value: Json) -> bool:
    """Return whether no object in the document repeats a key; False may be wrong, True never is."""
    # Compare the number of keys in the text with the number of keys in the parsed value, in which
    # each repeated key occurs only once. In a document that is one flat object, count all colons.
    # In other documents, count the colons after a quotation mark: a colon in a string has no
    # quotation mark before it, unless the mark is escaped.
    if type(value) is dict and document.count(b":") == len(value):
        return True
    return sum(1 for _ in _KEY.finditer(document)) == _count_keys(value)


def _count_keys(value: Json) -> int:
    """Count the keys of all objects in a value; lists that begin with a scalar are skipped."""
    count, pending = 0, [value]
    while pending:
        node = pending.pop()
        if type(node) is dict:
            count += len(node)
            pending.extend(node.values())
        elif type(node) is list and node and type(node[0]) in (dict, list):
            pending.extend(node)
    return count


def _keep_first_of_equal_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members: dict[str, Json] = {}
    for key, value in pairs:
        members.setdefault(key, value)
    return members


def _parse_integer(text: str) -> int | float:
    """Parse an integer; an integer beyond 64 bits becomes a float, as in RapidJSON."""
    if len(text) <= _MAX_INTEGER_DIGITS:
        number = int(text)
        if _INT64_MIN <= number <= _UINT64_MAX:
            return number
    return _parse_float(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _parse_error("Number too big to be stored in double")
    return number


_TOLERANT_DECODER = json.JSONDecoder(
    object_pairs_hook=_keep_first_of_equal_keys,
    parse_int=_parse_integer,
    parse_float=_parse_float,
)


def _parse_error(reason: str) -> InvalidJson:
    return InvalidJson(f"JSON Parse error: {reason}")


def _too_deep(max_nesting: int) -> InvalidJson:
    return _parse_error(
        f"arrays and objects are nested more than {max_nesting} levels deep. Flatten the document"
    )


def _insert_arrays(value: Json, arrays: list[RawNumericArray]) -> Json:
    """Replace the placeholders "@0", "@1" ... in a parsed value by the arrays they stand for."""
    if type(value) is str and _PLACEHOLDER.fullmatch(value):
        return arrays[int(value[1:])]
    if type(value) is list:
        return [_insert_arrays(item, arrays) for item in value]
    if type(value) is dict:
        return {key: _insert_arrays(member, arrays) for key, member in value.items()}
    return value
