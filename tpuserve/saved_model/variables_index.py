"""Reads variables.index of a SavedModel, to find the required size of each variables.data-* file.

The file is a table in LevelDB's format with a BundleEntryProto for each variable. Sources:
tensorflow/core/util/tensor_bundle/tensor_bundle.cc, tensorflow/core/lib/io/format.cc and
https://github.com/google/leveldb/blob/main/doc/table_format.md.
"""

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from tpuserve.proto import saved_model_pb2 as pb

_FOOTER_BYTES = 48
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
# The byte after each block states its type of compression. This value means no compression, which
# TensorFlow uses for variables.index.
_UNCOMPRESSED = 0
# The size in bytes of each number at the end of a block. These numbers are the offsets of LevelDB's
# restart points, and then the number of restart points.
_RESTART_BYTES = 4


def shard_sizes(index: bytes) -> dict[int, int]:
    """Return the size in bytes that each variables.data-* file must at least have.

    Args:
      index: the content of variables.index.

    Returns:
      Number of the data file, such as 1 for variables.data-00001-of-00002 → size in bytes.

    Raises:
      ValueError: the content is damaged, or compressed.
    """
    sizes: dict[int, int] = {}
    try:
        for key, value in _read_table(index):
            # Skip the entry with the empty key: it is a BundleHeaderProto and not a variable.
            if key:
                entry = pb.BundleEntryProto.FromString(value)
                end = entry.offset + entry.size
                sizes[entry.shard_id] = max(sizes.get(entry.shard_id, 0), end)
    except (IndexError, DecodeError) as error:
        raise ValueError(f"it is damaged: {error}") from error
    return sizes


def _read_table(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a LevelDB table.

    Raises:
      ValueError: the table is damaged or compressed.
    """
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("it does not end as such a file does")
    # A handle is the offset and size of a block. The footer has the handle of the meta index block,
    # which is not needed here, and then that of the index block. The values of the index block are
    # the handles of the data blocks.
    _, position = _read_handle(footer, 0)
    handle, _ = _read_handle(footer, position)
    for _, value in _read_block(table, handle):
        block, _ = _read_handle(value, 0)
        yield from _read_block(table, block)


def _read_block(table: bytes, handle: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of a LevelDB table.

    Args:
      table: the content of the file.
      handle: the offset and the size of the block in bytes.
    """
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
        # Keys are prefix-compressed: an entry has the number of bytes that its key has in common
        # with the previous key, and then only the remaining bytes of its key.
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
    """Read a varint at a position; return its value and the position of the byte after it."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return number, position
