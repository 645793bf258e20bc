"""Configuration files in protobuf's text form."""

import sys
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from tpuserve.errors import InvalidConfig

Proto = TypeVar("Proto", bound=Message)


def read_text(path: Path) -> str:
    """Return the text of a configuration file.

    Bytes that are not UTF-8 become lone surrogates, so that the parser reports their line.

    Raises:
      InvalidConfig: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidConfig(
            f"cannot read {path}: {error.strerror or error}. Give a file in protobuf's text form."
        ) from error


def parse_text(text: str, empty: Proto, path: Path, pool: DescriptorPool | None = None) -> Proto:
    """Parse a message from its text form into an empty message, and return the message.

    A text that cannot be parsed is also reported on standard error with the message of libprotobuf,
    because scripts search for that message.

    Args:
      text: the text form.
      empty: the message to fill.
      path: the file of the text, for error messages.
      pool: the messages that a field of type Any may hold; None for protobuf's default pool.

    Raises:
      InvalidConfig: the text cannot be parsed; the error's cause says where.
    """
    try:
        return text_format.Parse(text, empty, descriptor_pool=pool)
    except (text_format.ParseError, UnicodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        message_name = type(empty).DESCRIPTOR.full_name
        sys.stderr.write(f"Error parsing text-format {message_name}: {reason}\n")
        raise InvalidConfig(f"Invalid protobuf file: '{path}'") from ValueError(reason)


def read_message(path: Path, empty: Proto) -> Proto:
    """Read a file in text form into an empty message, and return the message.

    Raises:
      InvalidConfig: the file cannot be read or parsed.
    """
    return parse_text(read_text(path), empty, path)
