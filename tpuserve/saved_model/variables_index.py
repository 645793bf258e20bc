"""Reads variables.index, which tells how many bytes each file variables.data-* must have.

The file is a table of LevelDB's format with a BundleEntryProto for each variable. Sources:
tensorflow/core/util/tensor_bundle/tensor_bundle.cc, tensorflow/core/lib/io/format.cc and
https://github.com/google/leveldb/blob/main/doc/table_format.md.
"""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tpuserve.proto import saved_model_pb2 as pb

_FOOTER_BYTES = 48
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
# The bytes after each block: one for the type of its compression, four for its checksum.
# TensorFlow does not compress the blocks.
_TRAILER_BYTES = 5
_UNCOMPRESSED = 0
# The bytes of each number at the end of a block: the offsets of the keys that are stored whole
# (LevelDB's restarts), and how many there are.
_RESTART_BYTES = 4


def shard_sizes(index: bytes) -> dict[int, int]:
    """Return the number of a data file → the bytes that it must have at least.

    Args:
      index: the content of variables.index.

    Raises:
      ValueError: the content is damaged, or compressed.
    """
    sizes: dict[int, int] = {}
    try:
        for key, value in _read_table(index):
            # Skip the BundleHeaderProto, which has the empty key.
            if key:
                entry = pb.BundleEntryProto.FromString(value)
                end = entry.offset + entry.size
                sizes[entry.shard_id] = max(sizes.get(entry.shard_id, 0), end)
    except (IndexError, DecodeError) as error:
        raise ValueError(f"it is damaged: {error}") from error
    return sizes


def _read_table(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("it does not end as such a file does")
    # The footer holds the handle of the meta index, which is not needed, and then the handle of the
    # index, a block whose values are the handles of the other blocks.
    _, position = _read_handle(footer, 0)
    handle, _ = _read_handle(footer, position)
    for _, value in _read_block(table, handle):
        block, _ = _read_handle(value, 0)
        yield from _read_block(table, block)


def _read_block(table: bytes, handle: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of the block at a handle: (offset, size), in bytes."""
    offset, size = handle
    block = table[offset : offset + size]
    if len(block) < size or size < _RESTART_BYTES:
        raise ValueError("a block is missing")
    if table[offset + size] != _UNCOMPRESSED:
        raise ValueError("it is compressed")
    restarts = int.from_bytes(block[-_RESTART_BYTES:], "little")
    end = size - _RESTART_BYTES * (restarts + 1)
    position, key = 0, b""
    while position < end:
        # Keys are prefix-compressed: an entry has the number of bytes that its key shares with the
        # previous key, and then the other bytes of the key.
        shared, position = _read_varint(block, position)
        unshared, position = _read_varint(block, position)
        length, position = _read_varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = _read_varint(data, position)
    size, position = _read_varint(data, position)
    return (offset, size), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of variable length, and the position behind it."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return number, position
