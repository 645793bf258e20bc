"""Reads configuration files in protobuf's text form."""

import re
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from tpuserve.errors import InvalidConfig, MalformedConfig

# Matches the tokens of protobuf's text form from which `find_field` determines the current field:
# comments and strings, which are skipped; names, and text in brackets, which is the type of an Any
# or a list of values; the beginnings and ends of messages; and the colon before a value.
_TOKEN = re.compile(
    r"""(?P<skipped>\#[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
    |(?P<name>[A-Za-z_]\w*|\[[\w./\s-]*\]?)|(?P<sign>[{}<>:])|\S""",
    re.VERBOSE,
)


def find_field(text: str, line: int, column: int) -> str:
    """Return the path of the field at a position, such as "model_config_list.config.name".

    Returns:
      The names of the enclosing fields and of the field, joined by "."; "" if the position is
      outside of all fields.
    """
    lines = text.splitlines(keepends=True)
    end = sum(map(len, lines[: line - 1])) + column
    parents: list[str] = []
    field, previous = "", ""
    for token in _TOKEN.finditer(text):
        if token.start() >= end:
            break
        if token["name"] and previous != ":":
            field = token["name"].strip("[] \n")
        elif token["sign"] and token["sign"] in "{<":
            parents.append(field)
            field = ""
        elif token["sign"] and token["sign"] in "}>":
            field = ""
            del parents[-1:]
        if not token["skipped"] or previous == ":":
            previous = token[0]
    return ".".join(filter(None, [*parents, field]))


# Matches the message of a ParseError, "line:column : reason".
_POSITION = re.compile(r"(?P<line>\d+):(?P<column>\d+) : (?P<reason>.*)", re.DOTALL)
_UNKNOWN_TYPE = re.compile(r"Type (?P<name>\S+) not found in descriptor pool")
# Matches a lone surrogate, which stands for a byte of the file that is not UTF-8.
_SURROGATE = re.compile("[\ud800-\udfff]")

Proto = TypeVar("Proto", bound=Message)


def read_text(path: Path) -> str:
    """Return the text of a configuration file.

    Bytes that are not UTF-8 become lone surrogates, so that the error message of `parse_text` can
    name their line.
    """
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidConfig(
            f"cannot read {path}: {error.strerror or error}. Give a file in protobuf's text form."
        ) from error


def parse_text(text: str, empty: Proto, path: Path, pool: DescriptorPool | None = None) -> Proto:
    """Parse a message from its text form into an empty message, and return the message.

    Args:
      empty: an empty message of the expected type, which is filled.
      pool: the descriptor pool of the messages that a field of type Any can hold; None for
        protobuf's default pool.

    Raises:
      MalformedConfig: the text cannot be parsed. The error names the line, the column and the
        field.
    """
    try:
        return text_format.Parse(text, empty, descriptor_pool=pool)
    except text_format.ParseError as error:
        position, reason = _split_reason(error, text)
        place = _format_place(text, *position) if position else ""
    except (UnicodeError, RecursionError) as error:
        reason, surrogate = str(error), _SURROGATE.search(text)
        place = ""
        if surrogate is not None:
            before = text[: surrogate.start()]
            column = surrogate.start() - before.rfind("\n")
            place = _format_place(text, before.count("\n") + 1, column)
            reason = "the text is not UTF-8"
    message_name = type(empty).DESCRIPTOR.full_name
    raise MalformedConfig(
        f"Invalid protobuf file: '{path}'{place}: Error parsing text-format {message_name}: "
        f"{' '.join(reason.split()).encode(errors='backslashreplace').decode()}"
    )


def _split_reason(error: text_format.ParseError, text: str) -> tuple[tuple[int, int] | None, str]:
    """Split a parse error into its position (line and column, from 1) and its reason."""
    match = _POSITION.match(str(error))
    if match is not None:
        return (int(match["line"]), int(match["column"])), match["reason"]
    # The error has no position if a field of type Any names an unknown message type. Use the first
    # occurrence of this name in the text as the position.
    unknown = _UNKNOWN_TYPE.match(str(error))
    start = text.find(unknown["name"]) if unknown is not None else -1
    if start < 0:
        return None, str(error)
    return (text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)), str(error)


def _format_place(text: str, line: int, column: int) -> str:
    field = find_field(text, line, column)
    return f": line {line}, column {column}" + (f", field {field}" if field else "")


def read_message(path: Path, empty: Proto) -> Proto:
    """Read a file in text form into an empty message, and return the message."""
    return parse_text(read_text(path), empty, path)
