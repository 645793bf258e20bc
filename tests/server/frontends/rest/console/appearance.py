"""Describes what a page shows, and stores the description in a screenshot of the page.

The pixels of a screenshot differ between machines, and so do the figures in the page. The
description has neither, so that a test can compare the description in a screenshot with the page of
today.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.server.frontends.rest.console import pictures

_KEYWORD = b"Description"
# The bytes after a keyword of an iTXt chunk: the text is compressed with zlib, and has no language.
_COMPRESSED = b"\0\1\0\0\0"

# Numbers with their units, several of them in a row, and the dash for a number that is not known.
_FIGURES = re.compile(r"\d[\d.,]*(?: ?(?:ms|s|kB|MB|GB)\b)?|^–$")
# The reason why a message cannot be parsed, which only new versions of protobuf give.
_PROTOBUF_REASON = re.compile(r"(?<=SavedModel'): [^)]*(?=\))")
_FIGURE_ROW = re.compile(r"#(?:[-:·, ]+#)+")

# Return the tag, the text or the value, and the style of each visible element. Widths and positions
# are left out, because they depend on the fonts of the machine.
_ELEMENTS = """(selector) => {
  const properties = ["color", "backgroundColor", "fontSize", "fontWeight", "textAlign", "display",
    "paddingTop", "paddingLeft", "borderTopWidth", "borderTopLeftRadius"];
  const root = document.querySelector(selector);
  return [root, ...root.querySelectorAll("*")].filter((element) => element.checkVisibility())
    .map((element) => {
      const style = getComputedStyle(element);
      const text = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
        .map((node) => node.textContent).join("") + (element.value ?? "");
      return [element.tagName.toLowerCase(), text.replace(/\\s+/g, " ").trim(),
        properties.map((name) => style[name]).join(" ")];
    });
}"""


def describe(page: Any, selector: str, directory: Path) -> list[str]:
    """Return a line for each visible element of a part of a page.

    A line has the name of the tag, the text and the style. "#" stands for the numbers in the text.

    Args:
      page: Playwright's page.
      selector: the CSS selector of the part.
      directory: the directory of the models, whose name is left out.
    """
    return [
        f"{tag} {_mask(text.replace(str(directory), ''))!r} {style}"
        for tag, text, style in page.evaluate(_ELEMENTS, selector)
    ]


def write_description(picture: Path, description: list[str]) -> None:
    """Add a description to the metadata of a PNG file."""
    data = picture.read_bytes()
    end = data.rindex(pictures.chunk(b"IEND", b""))
    text = zlib.compress("\n".join(description).encode())
    picture.write_bytes(
        data[:end] + pictures.chunk(b"iTXt", _KEYWORD + _COMPRESSED + text) + data[end:]
    )


def read_description(picture: Path) -> list[str]:
    """Return the description in the metadata of a PNG file, or [] if the file has none."""
    for kind, content in _chunks(picture.read_bytes()):
        if kind == b"iTXt" and content.startswith(_KEYWORD + b"\0"):
            text = content.removeprefix(_KEYWORD + _COMPRESSED)
            return _PROTOBUF_REASON.sub("", zlib.decompress(text).decode()).split("\n")
    return []


def _mask(text: str) -> str:
    return _FIGURE_ROW.sub("#", _FIGURES.sub("#", _PROTOBUF_REASON.sub("", text)))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and the content of each chunk of a PNG file."""
    position = len(pictures.SIGNATURE)
    while position < len(data):
        size, kind = struct.unpack_from(">I4s", data, position)
        # 8 bytes of size and type stand before the content, and 4 bytes of checksum behind it.
        yield kind, data[position + 8 : position + 8 + size]
        position += size + 12
