"""Files in protobuf's text form."""

import sys
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from tpuserve.errors import InvalidConfig

Proto = TypeVar("Proto", bound=Message)


def read(path: Path) -> str:
    """The text of a file.

    Raises:
      InvalidConfig: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidConfig(
            f"cannot read {path}: {error.strerror or error}. Give a file in protobuf's text form."
        ) from error


def parse(text: str, empty: Proto, path: Path, pool: DescriptorPool | None = None) -> Proto:
    """A message out of its text form, filled in place.

    Where it cannot be parsed, a line on standard error says so as libprotobuf does, which
    scripts look for.

    Args:
      pool: has the messages that may stand in a field for any of them; None for the common one.

    Raises:
      InvalidConfig: it cannot be parsed; its cause says where.
    """
    try:
        return text_format.Parse(text, empty, descriptor_pool=pool)
    except (text_format.ParseError, UnicodeError, RecursionError) as error:
        where = " ".join(str(error).split())
        kind = type(empty).DESCRIPTOR.full_name
        sys.stderr.write(f"Error parsing text-format {kind}: {where}\n")
        raise InvalidConfig(f"Invalid protobuf file: '{path}'") from ValueError(where)
