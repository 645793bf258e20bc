"""Decompresses request messages within the limits of the server.

The server turns gRPC's own decompression off, because gRPC decompresses a message before the server
can limit the memory for it.
"""

import zlib
from collections.abc import Callable

import numpy as np

from server.admission.memory_budget import MemoryReservation
from tpuserve.errors import RequestTooLarge

# The first bytes of gzip data. A message that begins with these bytes is compressed: in a protobuf
# message, they would be a field of wire type 7, and there is no such type.
_GZIP_MAGIC = b"\x1f\x8b"
# The first byte of zlib data, which gRPC calls "deflate". No request message of this server begins
# with this byte unless the message is compressed.
_ZLIB_MAGIC = b"\x78"
_GZIP_WINDOW_BITS, _ZLIB_WINDOW_BITS = 31, 15
# _CHUNK_BYTES is the largest number of bytes to decompress between two checks of the limits,
# _PART_BYTES the largest number of compressed bytes to pass to zlib at a time.
_CHUNK_BYTES, _PART_BYTES = 1 << 20, 1 << 16


def decompress(
    message: bytes, max_bytes: int, memory: MemoryReservation, check: Callable[[], object]
) -> bytes | memoryview:
    """Decompress a message; return it unchanged if it is not compressed.

    Args:
      max_bytes: the largest size of the decompressed message.
      memory: the request's reservation in the memory budget. It is enlarged before each chunk is
        decompressed.
      check: raises an error if nobody waits for the answer any more; called for each chunk.
    """
    window_bits = find_window_bits(message)
    if window_bits is None:
        return message
    decompressor = zlib.decompressobj(window_bits)
    chunks, size, position, reserved_bytes = [], 0, 0, memory.num_bytes
    while not decompressor.eof:
        # Reserve twice the size of the next chunk: for the chunk, and for its copy when all chunks
        # are joined to the message.
        memory.grow(2 * _CHUNK_BYTES)
        check()
        # Pass zlib one small part of the message at a time. Each call of zlib copies the rest of
        # its input that is not decompressed yet. For a whole large message, each copy would be
        # large.
        pending = decompressor.unconsumed_tail
        if not pending:
            pending = message[position : position + _PART_BYTES]
            position += len(pending)
        try:
            chunk = decompressor.decompress(pending, _CHUNK_BYTES)
        except zlib.error:
            chunk, position = b"", len(message)
        memory.shrink(2 * (_CHUNK_BYTES - len(chunk)))
        if not chunk and not decompressor.eof and position == len(message):
            # Either the message is not compressed, although it begins like compressed data, or the
            # compressed data is incomplete.
            memory.shrink(memory.num_bytes - reserved_bytes)
            return message
        size += len(chunk)
        chunks.append(chunk)
        if size > max_bytes:
            raise RequestTooLarge(
                f"the message has more than {max_bytes} bytes after decompression "
                f"(--max_request_bytes). Send less at a time."
            )
    return chunks[0] if len(chunks) == 1 else _join(chunks, size)


def _join(chunks: list[bytes], size: int) -> memoryview:
    """Join chunks of bytes, and let other threads run meanwhile."""
    joined, position = np.empty(size, np.uint8), 0
    for chunk in chunks:
        joined[position : position + len(chunk)] = np.frombuffer(chunk, np.uint8)
        position += len(chunk)
    return joined.data


def find_window_bits(message: bytes) -> int | None:
    """Return the argument `wbits` of zlib.decompressobj that fits a message.

    The first bytes of the message tell whether it is gzip data or zlib data.

    Returns:
      None if the message is not compressed.
    """
    if message.startswith(_GZIP_MAGIC):
        return _GZIP_WINDOW_BITS
    if message.startswith(_ZLIB_MAGIC):
        return _ZLIB_WINDOW_BITS
    return None
