"""JSON read as RapidJSON reads it, at any depth: slow, and only for what faster parsers refuse."""

import math
import re
from typing import Any, NoReturn

from tpuserve.errors import InvalidJson

_SPACE = re.compile(r"[ \t\n\r]*")
_OPENINGS = re.compile(r"\[+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]*)?")
_SPECIAL = re.compile(r"-?(?:NaN|Inf(?:inity)?)")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_LITERALS: dict[str, tuple[str, Any]] = {
    "n": ("null", None),
    "t": ("true", True),
    "f": ("false", False),
}
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
# Beyond this many digits no number fits 64 bits, whatever it is.
_MAX_DIGITS = 20


def parse(body: bytes) -> Any:
    """The first value of a document; what follows it is ignored.

    Of a key that comes twice the first counts. Bytes that are no UTF-8 are kept, as lone
    surrogates. Texts of errors are RapidJSON's, see its error/en.h.

    Raises:
      InvalidJson: no JSON, with the offset in bytes of where that shows.
    """
    return _Reader(body.decode("utf-8", "surrogateescape")).read()


class _Reader:
    """One document, and how far it has been read; nesting is on a list, not on the stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[Any] = []
        self._keys: list[str] = []

    def read(self) -> Any:
        self._skip_space()
        if self._at == len(self._text):
            self._fail("The document is empty.")
        while True:
            value, is_container = self._value()
            if is_container:
                continue
            # A value is whole: it goes into what is open, which may be whole then too.
            while self._open:
                value = self._close_lists(value)
                if not self._open:
                    return value
                self._add(value)
                if not self._closes():
                    break
                value = self._open.pop()
            if not self._open:
                return value

    def _value(self) -> tuple[Any, bool]:
        # A whole value, or (True) a container that has been opened.
        text = self._text
        first = text[self._at : self._at + 1]
        if first == "[":
            return self._open_lists()
        if first == "{":
            self._at += 1
            self._skip_space()
            if self._take("}"):
                return {}, False
            self._open.append({})
            self._read_key()
            return None, True
        if first == '"':
            return self._string(), False
        if first in _LITERALS:
            return self._literal(*_LITERALS[first]), False
        return self._number(), False

    def _open_lists(self) -> tuple[Any, bool]:
        found = _OPENINGS.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        self._open.extend([] for _ in range(found.end() - found.start()))
        self._skip_space()
        if self._take("]"):
            return self._open.pop(), False
        return None, True

    def _close_lists(self, value: Any) -> Any:
        # Many lists that end at once, for which the general way would take seconds.
        text, at, containers = self._text, self._at, self._open
        while containers and text.startswith("]", at) and type(containers[-1]) is list:
            containers[-1].append(value)
            value = containers.pop()
            at += 1
        self._at = at
        return value

    def _add(self, value: Any) -> None:
        container = self._open[-1]
        if type(container) is list:
            container.append(value)
        else:
            container.setdefault(self._keys.pop(), value)

    def _closes(self) -> bool:
        # After a member: the end of the container, or a comma and whatever comes after it.
        is_list = type(self._open[-1]) is list
        self._skip_space()
        if self._take("]" if is_list else "}"):
            return True
        if not self._take(","):
            self._fail(
                "Missing a comma or ] after an array element."
                if is_list
                else "Missing a comma or } after an object member."
            )
        self._skip_space()
        if not is_list:
            self._read_key()
        return False

    def _read_key(self) -> None:
        if self._text[self._at : self._at + 1] != '"':
            self._fail("Missing a name for object member.")
        self._keys.append(self._string())
        self._skip_space()
        if not self._take(":"):
            self._fail("Missing a colon after a name of object member.")
        self._skip_space()

    def _string(self) -> str:
        start = self._at
        self._at += 1
        pieces: list[str] = []
        while True:
            plain = _PLAIN.match(self._text, self._at)
            assert plain is not None
            pieces.append(plain.group())
            self._at = plain.end()
            if self._take('"'):
                return "".join(pieces)
            if self._take("\\"):
                pieces.append(self._escaped())
                continue
            if self._text[self._at : self._at + 1] in ("", "\0"):
                self._at = start
                self._fail("Missing a closing quotation mark in string.")
            self._fail("Invalid encoding in string.")

    def _escaped(self) -> str:
        start = self._at - 1
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter != "u":
            self._at = start
            self._fail("Invalid escape character in string.")
        code = self._hex(start)
        if not 0xD800 <= code < 0xE000:
            return chr(code)
        if code < 0xDC00 and self._take("\\") and self._take("u"):
            low = self._hex(start)
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        self._at = start
        self._fail("The surrogate pair in string is invalid.")

    def _hex(self, start: int) -> int:
        found = _HEX.match(self._text, self._at)
        if found is None:
            self._at = start
            self._fail("Incorrect hex digit after \\u escape in string.")
        self._at = found.end()
        return int(found.group(), 16)

    def _literal(self, word: str, value: Any) -> Any:
        for letter in word:
            if not self._take(letter):
                self._fail("Invalid value.")
        return value

    def _number(self) -> int | float:
        special = _SPECIAL.match(self._text, self._at)
        if special is not None:
            self._at = special.end()
            word = special.group()
            return math.nan if "NaN" in word else -math.inf if word[0] == "-" else math.inf
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            self._at += self._text[self._at : self._at + 1] == "-"
            self._fail("Invalid value.")
        fraction, exponent = found.groups()
        if fraction == ".":
            self._at = found.end(1)
            self._fail("Miss fraction part in number.")
        if exponent is not None and not exponent[-1].isdigit():
            self._at = found.end()
            self._fail("Miss exponent in number.")
        number = _number(found.group(), fraction is None and exponent is None)
        if math.isinf(number):
            self._fail("Number too big to be stored in double.")
        self._at = found.end()
        return number

    def _take(self, character: str) -> bool:
        if self._text.startswith(character, self._at):
            self._at += 1
            return True
        return False

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fail(self, reason: str) -> NoReturn:
        offset = len(self._text[: self._at].encode("utf-8", "surrogateescape"))
        raise InvalidJson(f"JSON Parse error: {reason} at offset: {offset}")


def _number(text: str, is_integer: bool) -> int | float:
    # What 64 bits do not hold is a double, as RapidJSON has it.
    if is_integer and len(text) <= _MAX_DIGITS and _INT64_MIN <= int(text) <= _UINT64_MAX:
        return int(text)
    return float(text)
