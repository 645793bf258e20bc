"""Parses JSON as tolerantly as RapidJSON, the parser of TensorFlow Serving."""

import json
import math
import re
from collections.abc import Callable, Set
from itertools import chain, compress, islice, repeat
from operator import is_, itemgetter
from typing import Any, TypeAlias

import numpy as np
import orjson

from server.codec.numeric_arrays import MIN_BYTES, RawNumericArray, extract_numeric_arrays
from server.servables.servable import Array
from tpuserve.errors import InvalidJson

Json: TypeAlias = Any

MAX_NESTING = 512
"""The deepest nesting of arrays and objects in a document, in levels."""

# The deepest allowed nesting of a document from which large arrays of numbers were extracted.
_MAX_NESTING_AROUND_ARRAYS = 64
_MAX_SHOWN_CHARACTERS = 256
_SPACE = " \t\r\n"
_BLANKS = _SPACE.encode()
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
# The number of decimal digits of 2^64 - 1. Longer integers are parsed as floats without calling
# int(), because int() refuses texts of several thousand digits.
_MAX_INTEGER_DIGITS = 20
# The number of decimal digits of 2^63, the least positive integer that int64 cannot hold. Integers
# with fewer digits are parsed without a check of their range.
_MIN_DIGITS_BEYOND_64_BITS = 19
_CONTAINERS = frozenset((dict, list))
# The number of bytes of the document whose nesting is checked at a time. The number bounds the
# memory of the intermediate arrays.
_CHUNK_BYTES = 1 << 16
_PLACEHOLDER = re.compile(r"@[0-9]+")
# A table for bytes.translate that replaces each digit by 0 and "E" by "e". A search for a fixed
# string of zeros then finds numbers with many digits.
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789E", b"000000000e")
# Byte strings to search for in a document in which each digit was replaced by 0.
_SIGNS_OF_BIG_NUMBERS = (b"0" * 19, b"e000", b"e+000")
# Matches the escape sequence (\uD800 to \uDFFF) of a surrogate without the other half of its pair,
# which RapidJSON refuses. The searched text must not contain escaped backslashes.
_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
_ERROR_ENCODER = json.JSONEncoder(
    ensure_ascii=False, indent=4, default=lambda array: array.tolist()
)


def parse_json(body: bytes) -> Json:
    """Parse the first JSON value of a request body.

    As in RapidJSON, NaN, Infinity and Inf are numbers, text after the value is ignored, the first
    of duplicate keys counts, and integers beyond 64 bits become floats.

    Returns:
      None, bool, int, float, str, list or dict. A large array of numbers is a `RawNumericArray`.

    Raises:
      InvalidJson: The body does not begin with a JSON value, or its arrays and objects are nested
        more than 512 levels deep.
    """
    if not body.strip(_BLANKS):
        raise _parse_error("The document is empty")
    value = parse_numeric_json(body, len(body))
    return _parse_document(body, MAX_NESTING) if value is None else value


def parse_numeric_json(body: bytes, max_other_bytes: int) -> Json | None:
    """Parse a request body that consists mostly of large arrays of numbers.

    For such a body, this takes a tenth of the time of ordinary parsing.

    Args:
      max_other_bytes: The largest allowed size in bytes of the text besides the large arrays.

    Returns:
      The value that `parse_json` would return.
      None if the body cannot be parsed in this way, for example because it has no large array, has
      more than `max_other_bytes` bytes of other text, or may be invalid.
    """
    extracted = extract_numeric_arrays(body) if len(body) >= MIN_BYTES else None
    if extracted is None or len(extracted[0]) > max_other_bytes:
        return None
    document, arrays = extracted
    try:
        return _insert_arrays(_parse_document(document, _MAX_NESTING_AROUND_ARRAYS), arrays)
    except InvalidJson:
        # The body is invalid or nested too deep, or numbers inside of a string were taken for an
        # array. The caller then parses the original body in the ordinary way.
        return None


def format_for_error(value: Json) -> str:
    """Format a parsed value as JSON for an error text.

    If the JSON has more than 256 characters, return the first 256, followed by "...".
    """
    if isinstance(value, (list, dict, RawNumericArray)):
        # Take only _MAX_SHOWN_CHARACTERS + 1 chunks from the encoder, so that a large value is not
        # encoded as a whole. They are enough, because each chunk has at least one character.
        text = "".join(islice(_ERROR_ENCODER.iterencode(value), _MAX_SHOWN_CHARACTERS + 1))
    else:
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return text[:_MAX_SHOWN_CHARACTERS] + "..."


def json_type_name(value: Json) -> str:
    """Return the JSON type of a value as TensorFlow Serving's errors name it, such as "Array"."""
    names = {
        dict: "Object",
        list: "Array",
        RawNumericArray: "Array",
        str: "String",
        bool: "Boolean",
        type(None): "Null",
    }
    return names.get(type(value), "Number")


def _parse_document(body: bytes, max_nesting: int) -> Json:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_tolerantly(body, max_nesting)
    # Parse a document with duplicate keys again, because orjson keeps the last of the members with
    # the same key, and TensorFlow Serving's RapidJSON uses the first.
    if _check_structure(body, value, max_nesting):
        return value
    del value
    return _parse_tolerantly(body, max_nesting, keep_first_of_equal_keys=True)


def _parse_tolerantly(
    body: bytes, max_nesting: int, keep_first_of_equal_keys: bool = False
) -> Json:
    """Parse a document with Python's `json`, and return the values that RapidJSON would return."""
    # RapidJSON accepts Inf and -NaN as numbers, but Python's `json` does not, so replace them.
    if b"Inf" in body or b"-NaN" in body:
        body = _rewrite_special_numbers(body)
    text = body.decode("utf-8", "surrogateescape")
    start = len(text) - len(text.lstrip(_SPACE))
    if start == len(text):
        raise _parse_error("The document is empty")
    zeros = body.translate(_DIGITS_TO_ZEROS)
    has_big_numbers = any(sign in zeros for sign in _SIGNS_OF_BIG_NUMBERS)
    del zeros
    decoder = _create_decoder(has_big_numbers, keep_first_of_equal_keys)
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode("utf-8", "surrogateescape"))
        raise _parse_error(f"{error.msg} at offset: {offset}") from None
    except RecursionError:
        raise _too_deep(max_nesting) from None
    document = text[:end].encode("utf-8", "surrogateescape")
    # If the caller has asked to keep the first of equal keys, do not check the structure again:
    # `_parse_document` has checked the nesting, and `decoder` has kept the first of equal keys.
    is_done = keep_first_of_equal_keys or _check_structure(document, value, max_nesting)
    has_surrogates = b"\\ud" in body or b"\\uD" in body
    if has_surrogates and _LONE_SURROGATE.search(text.replace("\\\\", "  "), 0, end):
        raise _parse_error("The surrogate pair in string is invalid")
    if is_done:
        return value
    return _create_decoder(has_big_numbers, True).raw_decode(text, start)[0]


def _rewrite_special_numbers(body: bytes) -> bytes:
    """Replace Inf by Infinity and -NaN by NaN, outside of strings, for Python's `json`."""
    # Replace the escape sequences of backslashes and quotation marks by spaces, so that each
    # remaining quotation mark begins or ends a string.
    without_escapes = body.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    quotes = np.flatnonzero(np.frombuffer(without_escapes, np.uint8) == ord('"'))
    octets = np.frombuffer(bytearray(body), np.uint8)
    signs = _find_outside_of_strings(b"-NaN", octets, quotes)
    octets[signs] = ord(" ")
    infinities = _find_outside_of_strings(b"Inf", octets, quotes)
    ends = infinities[np.append(octets, 0)[infinities + 3] != ord("i")] + 3
    rest = np.frombuffer(b"inity", np.uint8)
    num_inserted = np.zeros(len(octets), np.int32)
    num_inserted[ends[ends < len(octets)]] = len(rest)
    rewritten = np.empty(len(octets) + len(rest) * len(ends), np.uint8)
    offsets = np.cumsum(num_inserted, dtype=np.int32, out=num_inserted)
    offsets += np.arange(len(octets), dtype=np.int32)
    rewritten[offsets] = octets
    new_ends = ends + len(rest) * np.arange(len(ends))
    rewritten[new_ends[:, np.newaxis] + np.arange(len(rest))] = rest
    return rewritten.tobytes()


def _find_outside_of_strings(token: bytes, octets: Array, quotes: Array) -> Array:
    num_offsets = max(0, len(octets) - len(token) + 1)
    is_token = np.ones(num_offsets, np.bool_)
    for index, octet in enumerate(token):
        is_token &= octets[index : index + num_offsets] == octet
    offsets = np.flatnonzero(is_token)
    outside: Array = offsets[np.searchsorted(quotes, offsets) % 2 == 0]
    return outside


def _check_structure(document: bytes, value: Json, max_nesting: int) -> bool:
    """Check how deep a valid document is nested, and whether an object repeats a key."""
    num_colons = document.count(b":")
    is_flat = document.count(b"[") + document.count(b"{") <= max_nesting
    if is_flat and (not num_colons or type(value) is dict and num_colons == len(value)):
        return True
    # Replace the escape sequences of backslashes and quotation marks by spaces, so that each
    # remaining quotation mark begins or ends a string.
    text = document.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    depth = num_quotes = num_keys = 0
    for start in range(0, len(text), _CHUNK_BYTES):
        octets = np.frombuffer(text, np.uint8, min(_CHUNK_BYTES, len(text) - start), start)
        quotes = num_quotes + np.cumsum(octets == ord('"'), dtype=np.int32)
        # Setting bit 0x20 turns "[" and "]" into "{" and "}" in ASCII, so that both kinds of
        # brackets are counted together. Bytes inside of strings become 0: they do not count.
        braces = np.where(quotes & 1, 0, octets | 0x20)
        steps = (braces == ord("{")).view(np.int8) - (braces == ord("}")).view(np.int8)
        depths = depth + np.cumsum(steps, dtype=np.int32)
        if depths.max() > max_nesting:
            raise _too_deep(max_nesting)
        num_keys += int(np.count_nonzero(braces == ord(":")))
        depth, num_quotes = int(depths[-1]), int(quotes[-1])
    return not num_keys or num_keys == _count_keys(value)


def _count_keys(value: Json) -> int:
    """Count the keys of all objects in a parsed value."""
    count = 0
    # Each iteration visits all values of one nesting level with functions that are implemented in
    # C, which takes a fraction of the time of a Python loop over the values.
    level = [value]
    while not _CONTAINERS.isdisjoint(types := set(map(type, level))):
        objects = _find_nonempty(dict, level, types)
        lists = _find_nonempty(list, level, types)
        first_types = map(type, map(itemgetter(0), lists))
        nested_lists = compress(lists, map(_CONTAINERS.__contains__, first_types))
        count += sum(map(len, objects))
        members = chain.from_iterable(map(dict.values, objects))
        level = list(chain(members, chain.from_iterable(nested_lists)))
    return count


def _find_nonempty(kind: type, values: list[Json], types: Set[type]) -> list[Json]:
    if kind not in types:
        return []
    if len(types) > 1:
        values = list(compress(values, map(is_, map(type, values), repeat(kind))))
    return list(filter(None, values))


def _keep_first_of_equal_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    if not pairs:
        return {}
    members = dict(pairs)
    if len(members) < len(pairs):
        members.update(reversed(pairs))
    return members


def _parse_integer(text: str) -> int | float:
    """Parse the text of an integer; an integer beyond 64 bits becomes a float, as in RapidJSON."""
    if len(text) < _MIN_DIGITS_BEYOND_64_BITS:
        return int(text)
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


class _NumberCache(dict[str, Json]):
    """Maps the texts of numbers to numbers, and parses a text when it is first looked up."""

    def __init__(self, parse: Callable[[str], Json]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: str) -> Json:
        number = self[text] = self._parse(text)
        return number


def _create_decoder(checks_numbers: bool, keeps_first_of_equal_keys: bool) -> json.JSONDecoder:
    """Create a decoder of Python's `json` module with the selected behaviours of RapidJSON."""
    hook = _keep_first_of_equal_keys if keeps_first_of_equal_keys else None
    if not checks_numbers:
        return json.JSONDecoder(object_pairs_hook=hook)
    return json.JSONDecoder(
        object_pairs_hook=hook,
        parse_int=_NumberCache(_parse_integer).__getitem__,
        parse_float=_NumberCache(_parse_float).__getitem__,
    )


def _parse_error(reason: str) -> InvalidJson:
    return InvalidJson(f"JSON Parse error: {reason}")


def _too_deep(max_nesting: int) -> InvalidJson:
    return _parse_error(
        f"arrays and objects are nested more than {max_nesting} levels deep. Flatten the document"
    )


def _insert_arrays(value: Json, arrays: list[RawNumericArray]) -> Json:
    """Replace the placeholder strings "@0", "@1" ... in a parsed value by arrays."""
    if type(value) is str and _PLACEHOLDER.fullmatch(value):
        return arrays[int(value[1:])]
    if type(value) is list:
        return [_insert_arrays(item, arrays) for item in value]
    if type(value) is dict:
        return {key: _insert_arrays(member, arrays) for key, member in value.items()}
    return value
