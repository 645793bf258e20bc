"""Builds request bodies of any size that are costly to parse."""

import gzip
import random
from collections.abc import Callable
from typing import TypeAlias

Build: TypeAlias = Callable[[int], bytes]
"""Builds a body of about a size in bytes."""

HEAD = b'{"instances": ['


def fill(unit: bytes, end: bytes = b"1]}", head: bytes = HEAD) -> Build:
    """Return a function: size in bytes → body that repeats `unit` between `head` and `end`."""
    return lambda size: head + unit * ((size - len(head) - len(end)) // len(unit)) + end


def fill_string(unit: bytes, end: bytes = b"") -> Build:
    """Return a function: size in bytes → body with one long string that repeats `unit`."""
    return fill(unit, end + b'"]}', HEAD + b'"')


PIXELS = fill(b"12, 255, 7, ")
"""Bodies as an ordinary client sends them: the values of pixels."""

NUMBERS: dict[str, Build] = {
    "blanks": lambda size: b" " * size,
    "blanks before the document": lambda size: b" " * size + b'{"instances": [1]}',
    "blanks in an array": fill(b" ", b"]}"),
    "blanks around numbers": fill(b"    1   ,"),
    "opening brackets": lambda size: b"[" * size,
    "nested arrays": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "nested objects": lambda size: b'{"a":' * (size // 5),
    "short runs of brackets": fill(b"[" * 2040 + b"x"),
    "nested rows": fill(b'"",' + b"[" * 500 + b"1" + b"]" * 500 + b","),
    "long integers": fill(b"1" * 100_000 + b","),
    "one integer": fill(b"1", b"]}"),
    "one fraction": fill(b"1", b"]}", HEAD + b"0."),
    "one exponent": fill(b"1", b"]}", HEAD + b"1e"),
    "overflow after floats": fill(b"1.5,-0.25,", b"1e999]}"),
    "overflow after integers": fill(b"1,", b"1e999]}"),
    "NaN after floats": fill(b"1.5,-0.25,", b"NaN]}"),
    "NaN after integers": fill(b"1,", b"NaN]}"),
    "NaN": fill(b"NaN,", b"NaN]}"),
    "Inf": fill(b"Inf,"),
    "-NaN": fill(b"-NaN,"),
    "text after the document": fill(b"1.5,-0.25,", b"1]} x"),
    "wrong bracket at the end": fill(b"1,", b"1}"),
    "integers beyond 64 bits": fill(b"18446744073709551616,"),
    "integer beyond 64 bits after integers": fill(b"1,", b"18446744073709551616]} x"),
    "integers of 19 digits": fill(b"9223372036854775807,"),
    "empty objects": fill(b"{},", b"{}]}"),
    "equal keys after empty objects": fill(b"{},", b'{"a":1,"a":2}]}'),
    "equal keys": fill(b'{"a":1,"a":2},', b'{"a":1}]}'),
    "equal keys of one object": fill(b'"a":1,', b'"instances":[1]}', b"{"),
    "many keys": lambda size: (
        b'{"instances":[1]%s}' % b"".join(b',"%x":1' % key for key in range(size // 11))
    ),
    "empty lists": fill(b"[],", b"[]]}"),
    "equal keys after empty lists": fill(b"[],", b'{"a":1,"a":1}]}'),
    "short lists": fill(b"[1],", b"[1]]}"),
    "ragged list at the end": fill(b"[1],", b"[1,2]]}"),
    "ragged lists": fill(b"[1],[1,2],", b"[1]]}"),
    "lists and numbers": fill(b"1,[1],"),
    "named rows": fill(b'{"x":1},', b'{"x":1}]}'),
    "wrong name at the end": fill(b'{"x":1},', b'{"y":1}]}'),
    "nulls": fill(b"null,", b"null]}"),
    "string after integers": fill(b"1,", b'"a"]}'),
    "arrays and a sign of placeholders": fill(b"[%s1]," % (b"1," * 1100), b'"@"]}'),
    "arrays among strings": fill(b'["x",[%s1]],' % (b"1," * 1100)),
    "bytes that are not UTF-8 after integers": fill(b"1,", b'"\xff"]}'),
}
"""Bodies for an input of floats."""

STRINGS: dict[str, Build] = {
    "empty strings": fill(b'"",'),
    "short strings": fill(b'"a",', b'"a"]}'),
    "strings beyond ASCII": fill("\u20ac".join('""').encode() + b",", b'"x"]}'),
    "Inf after strings": fill(b'"",', b"Inf]}"),
    "one string": fill_string(b"a"),
    "escape sequences": fill_string(b"\\n"),
    "escaped characters": fill_string(b"\\u20ac"),
    "surrogate pairs": fill_string(b"\\ud83d\\ude00"),
    "half of a surrogate pair at the end": fill_string(b"\\n", b"\\ud800"),
    "bytes that are not UTF-8": fill_string(b"\xff"),
    "strings that are not UTF-8": fill(b'"\xff",', b'"x"]}'),
    "colons": fill_string(b":"),
    "quotation marks and colons": fill_string(b'\\":'),
    "base64 objects": fill(b'{"b64":"AA=="},', b'{"b64":""}]}'),
    "one base64 object": fill(b"AAAA", b'"}]}', HEAD + b'{"b64":"'),
    "base64 with blanks": fill(b"A ", b'"}]}', HEAD + b'{"b64":"'),
    "invalid base64": fill(b"AAAA", b'!"}]}', HEAD + b'{"b64":"'),
}
"""Bodies for an input of strings."""

EXAMPLES_HEAD = b'{"examples": ['
EXAMPLES: dict[str, Build] = {
    "integers of one feature": fill(b"1,", b"1]}]}", EXAMPLES_HEAD + b'{"a":['),
    "floats of one feature": fill(b"1.5,", b"1.5]}]}", EXAMPLES_HEAD + b'{"a":['),
    "strings of one feature": fill(b'"",', b'""]}]}', EXAMPLES_HEAD + b'{"a":['),
    "small examples": fill(b'{"a":1},', b'{"a":1}]}', EXAMPLES_HEAD),
    "empty examples": fill(b"{},", b"{}]}", EXAMPLES_HEAD),
}
"""Bodies of classify and regress requests."""


def build_random(seed: int) -> Build:
    """Return a function: size in bytes → body of random JSON tokens, which is not valid JSON."""
    tokens = [b"[", b"]", b"{", b"}", b",", b":", b'"', b'"a"', b'"a":', b"1", b"1.5", b"-", b"e9"]
    tokens += [b"NaN", b"Inf", b"null", b"\\", b" ", b"\xff", b"\xc3\xbc", b"[1,2],", b'{"x":1},']
    unit = b"".join(random.Random(seed).choices(tokens, k=400))
    return fill(unit)


def compress(body: bytes) -> bytes:
    """Compress a body as much as gzip can."""
    return gzip.compress(body, 9, mtime=0)
