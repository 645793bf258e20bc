"""Picture files, as Playwright uploads them."""

import struct
import zlib
from typing import Any

SIGNATURE = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file."""


def one_colour(red: int, green: int, blue: int, side: int = 16) -> dict[str, Any]:
    """Return a PNG file in which all pixels have one colour."""
    return _png([bytes((red, green, blue)) * side] * side)


def gradient(side: int = 64) -> dict[str, Any]:
    """Return a PNG file with colours from dark blue to yellow."""
    last = side - 1
    return _png(
        [
            b"".join(
                bytes((255 * x // last, 255 * y // last, 160 * (last - x) // last))
                for x in range(side)
            )
            for y in range(side)
        ]
    )


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG file: the size, the type of four letters, the content, a checksum."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _png(rows: list[bytes]) -> dict[str, Any]:
    # Each row begins with the number of its filter, 0 for none.
    pixels = b"".join(b"\0" + row for row in rows)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    )
    data = SIGNATURE + b"".join(chunk(kind, content) for kind, content in chunks)
    return {"name": "picture.png", "mimeType": "image/png", "buffer": data}
