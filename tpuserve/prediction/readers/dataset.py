"""Iterates over the records or lines of an input file with tf.data, and reports damaged files."""

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tpuserve.errors import Code, CodedError, InvalidTensor, TpuserveError
from tpuserve.prediction.batch import Position
from tpuserve.prediction.formats import compression_type
from tpuserve.saved_model.tfrecord import FRAME_BYTES, DamagedRecord, read_records

# The size of tf.data's buffer for reading a file, in bytes.
_BUFFER_BYTES = 8 << 20
# Matches texts that TensorFlow adds to an error message, such as the name of the node and of the
# op. They are removed, because users cannot know these nodes.
_ADDITIONS = re.compile(r"\{\{.*?\}\} |\s*\[Op:.*|\n.*", re.DOTALL)


def iterate_records(
    path: str,
    batch_size: int,
    start: Position,
    transform: Callable[[Any], Any] | None = None,
) -> Iterator[tuple[Any, Position]]:
    """Yield the records of a TFRecord file in batches, which other threads read and transform.

    Args:
      transform: a function for tf.data.Dataset.map. It takes the records of a batch, a string
        tensor [records], and returns tensors. None to yield the records themselves.
    """
    position = start

    def transform_and_count(records: Any) -> Any:
        assert transform is not None
        lengths = tf.cast(tf.strings.length(records), tf.int64)
        return transform(records), tf.size(records), tf.reduce_sum(lengths)

    dataset = tf.data.TFRecordDataset(path, compression_type(path), _BUFFER_BYTES)
    dataset = _skip(dataset, start).batch(batch_size)
    if transform is not None:
        dataset = dataset.map(transform_and_count, tf.data.AUTOTUNE, deterministic=True)
    for batch in _iterate(dataset, path):
        # Count the bytes of all records, for the check of the file's size after the loop. If there
        # is a `transform`, `transform_and_count` has counted them.
        result, count, content_bytes = (
            batch if transform is not None else (batch, len(batch), sum(map(len, batch)))
        )
        size = int(content_bytes) + FRAME_BYTES * int(count)
        position = Position(position.records + int(count), position.size + size)
        yield result, position
    # Compare the size of all records with that of the file. If a truncated file has less than 12
    # bytes of its last record, TensorFlow takes them for the end of the file.
    if position.size != _content_size(path):
        raise _damaged_error(path, "the file ends within a record")


def iterate_lines(path: str, batch_size: int, start: Position) -> Iterator[Any]:
    """Yield the lines of a text file in batches, as arrays [lines] of bytes without line ends."""
    dataset = tf.data.TextLineDataset(path, compression_type(path), _BUFFER_BYTES)
    yield from _iterate(_skip(dataset, start).batch(batch_size), path)
    _content_size(path)


def _skip(dataset: Any, start: Position) -> Any:
    """Return a tf.data dataset of an input file without the records before a position."""
    return dataset.skip(start.records) if start.records else dataset


def _iterate(dataset: Any, path: str) -> Iterator[Any]:
    try:
        yield from dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
    except tf.errors.OpError as error:
        raise _input_error(path, error) from error


def _content_size(path: str) -> int:
    """Return the size of a file in bytes; for a compressed file, the size after decompression."""
    if not compression_type(path):
        return os.path.getsize(path)
    try:
        with gzip.open(path) as file:
            return file.seek(0, os.SEEK_END)
    except (EOFError, OSError, zlib.error) as error:
        raise _damaged_error(path, str(error)) from error


def _input_error(path: str, error: Any) -> TpuserveError:
    reason = _ADDITIONS.sub("", error.message).rstrip(".")
    if isinstance(error, tf.errors.InvalidArgumentError):
        return InvalidTensor(
            f"a record of {path} does not fit the signature: {reason}. Correct the file, or choose "
            f"another --signature or --input-format."
        )
    if isinstance(error, tf.errors.DataLossError) and not compression_type(path):
        # TensorFlow reports the position of the damage in bytes. Read the file again to report the
        # number of the record, which is easier for users to find.
        try:
            for _ in read_records(path):
                pass
        except DamagedRecord as damage:
            reason = f"record {damage.number} is damaged: {damage.reason}"
        except OSError as os_error:
            reason = str(os_error)
    return _damaged_error(path, reason)


def _damaged_error(path: str, reason: str) -> CodedError:
    return CodedError(
        f"cannot read the input file {path}: {reason}. Write the file again, or choose the "
        f"--input-format that it has; the same command then continues with this file.",
        Code.DATA_LOSS,
    )
