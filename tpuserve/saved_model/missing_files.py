"""Finds missing and truncated files of a SavedModel, for example after an incomplete copy."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError

from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.proto.protobuf_wire import decode_varint
from tpuserve.saved_model import proto_file

VARIABLES = "variables"
ASSETS = "assets"

_INDEX_NAME = "variables.index"
_SHARD_NAME = re.compile(r"variables\.data-([0-9]{5})-of-([0-9]{5})")
# The largest number of missing files that an error message lists by name.
_MAX_NAMED = 3
# variables.index is a table in LevelDB's format with a BundleEntryProto for each variable. Source:
# https://github.com/google/leveldb/blob/main/doc/table_format.md.
_FOOTER_BYTES = 48
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
# The byte after each block states its type of compression. This value means no compression, which
# TensorFlow uses for variables.index.
_UNCOMPRESSED = 0
# The size in bytes of each number at the end of a block. These numbers are the offsets of LevelDB's
# restart points, and then the number of restart points.
_RESTART_BYTES = 4
_COPY_AGAIN = "Copy the whole directory, or export the model again."


def describe_missing_files(directory: Path, metagraphs: Sequence[pb.MetaGraphDef]) -> list[str]:
    """Describe missing or truncated files of a SavedModel's variables, and missing assets.

    Only the existence and size of the files are checked, and not their content.

    Returns:
      Sentences for the user. One sentence names the missing files of variables. If none is missing,
      there is one sentence for each truncated file, or one if variables.index is damaged.
    """
    problems = []
    if any(metagraph.saver_def.restore_op_name for metagraph in metagraphs):
        missing = _missing_variables(directory)
        problems += _describe(directory, missing) or _describe_cut_variables(directory)
    names = {
        f"{ASSETS}/{name}" for metagraph in metagraphs for name in proto_file.asset_names(metagraph)
    }
    # Use os.path.isfile. It returns False for an invalid path, such as one with a zero byte in a
    # damaged SavedModel, for which Path.is_file may raise an error.
    missing = [name for name in sorted(names) if not os.path.isfile(os.path.join(directory, name))]
    return problems + _describe(directory, missing)


def _missing_variables(directory: Path) -> list[str]:
    variables = directory / VARIABLES
    if not variables.is_dir():
        return [f"{VARIABLES}/"]
    names = {path.name for path in variables.iterdir()}
    # Take the expected number of data files from the names of the data files that exist:
    # variables.data-00000-of-00002 is one of 2 files.
    counts = {int(match[2]) for match in map(_SHARD_NAME.fullmatch, names) if match} or {1}
    expected = [_INDEX_NAME]
    expected += [f"variables.data-{n:05d}-of-{count:05d}" for count in counts for n in range(count)]
    return [f"{VARIABLES}/{name}" for name in expected if name not in names]


def _describe_cut_variables(directory: Path) -> list[str]:
    """Describe truncated files of variables: those that are shorter than variables.index says."""
    index = directory / VARIABLES / _INDEX_NAME
    try:
        sizes = _shard_sizes(index.read_bytes())
    except ValueError as error:
        return [f"{VARIABLES}/{_INDEX_NAME} in {directory} cannot be read: {error}. {_COPY_AGAIN}"]
    problems = []
    for path in sorted(index.parent.iterdir()):
        match = _SHARD_NAME.fullmatch(path.name)
        needed = sizes.get(int(match[1]), 0) if match else 0
        num_bytes = path.stat().st_size if needed else 0
        if num_bytes < needed:
            problems.append(
                f"{VARIABLES}/{path.name} in {directory} has {num_bytes} bytes of {needed}: it was "
                f"cut. {_COPY_AGAIN}"
            )
    return problems


def _describe(directory: Path, missing: list[str]) -> list[str]:
    if not missing:
        return []
    shown = ", ".join(missing[:_MAX_NAMED])
    if len(missing) > _MAX_NAMED:
        shown += f" and {len(missing) - _MAX_NAMED} other files"
    return [
        f"{shown} {'is' if len(missing) == 1 else 'are'} missing in {directory}, and the model "
        f"cannot run without. {_COPY_AGAIN}"
    ]


def _shard_sizes(index: bytes) -> dict[int, int]:
    """Return the size in bytes that each variables.data-* file must at least have."""
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
    """Yield the keys and values of a LevelDB table."""
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("it does not end as such a file does")
    # A handle is the offset and size of a block. The footer has the handle of the meta index block,
    # which is not needed here, and then that of the index block.
    _, position = _read_handle(footer, 0)
    handle, _ = _read_handle(footer, position)
    for _, value in _read_block(table, handle):
        block, _ = _read_handle(value, 0)
        yield from _read_block(table, block)


def _read_block(table: bytes, handle: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of a LevelDB table."""
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
        shared, position = decode_varint(block, position)
        unshared, position = decode_varint(block, position)
        length, position = decode_varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = decode_varint(data, position)
    size, position = decode_varint(data, position)
    return (offset, size), position
