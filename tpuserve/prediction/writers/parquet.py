"""Writes the outputs of a batch prediction to Parquet files, with a column for each output."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from tpuserve.errors import Code, CodedError
from tpuserve.prediction.batch import InputBatch, common_rows
from tpuserve.prediction.writers.append_file import AppendFile
from tpuserve.prediction.writers.columns import to_standard_dtype
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature, TensorSpec

# A row group is written as soon as it has this number of rows or bytes. Smaller row groups would
# make reading the file slow.
_GROUP_ROWS = 1 << 16
_GROUP_BYTES = 64 << 20
_STREAM_SUFFIX = ".arrow"


class ParquetFileWriter:
    """Writes a Parquet row for each entry along the batch dimension of the outputs.

    The class implements `tpuserve.prediction.writers.Writer`. An output of shape [rows] becomes a
    column of numbers or bytes. Each further dimension becomes a level of nested lists.

    A Parquet file that is not complete can be neither read nor continued.

    Args:
      size: the number of bytes to keep of the Arrow stream of an earlier writer; 0 to create
        the stream.
    """

    def __init__(self, path: Path, size: int, signature: Signature) -> None:
        self._path = path
        self._signature = signature
        self._writer: Any = None
        self._group: list[Any] = []
        self._group_rows = self._group_bytes = 0
        self._stream = AppendFile(path.with_name(path.name + _STREAM_SUFFIX), size)
        if size:
            with pa.OSFile(str(self._stream.path)) as stream:
                for rows in pa.ipc.open_stream(stream):
                    self._append(rows)

    def write(self, batch: InputBatch, outputs: Mapping[str, Array]) -> None:
        """Append the rows of a batch. They are written when there are enough for a row group.

        Raises:
          CodedError: the outputs differ in the size of their first dimension, or have other
            names or types than in earlier batches.
        """
        common_rows(outputs, batch.where)
        columns = {alias: _to_column(alias, array) for alias, array in sorted(outputs.items())}
        rows = pa.record_batch(columns)
        if self._writer is None:
            self._stream.append([rows.schema.serialize()])
        elif rows.schema != self._writer.schema:
            raise CodedError(
                f"{batch.where}: the outputs have other names, dtypes or numbers of dimensions "
                f"than before. Give --output-format=prediction_logs or jsonl.",
                Code.FAILED_PRECONDITION,
            )
        self._stream.append([rows.serialize()])
        self._append(rows)

    def sync(self) -> Path:
        """Write all rows so far to the Arrow stream on the disk, and return its path."""
        return self._stream.sync()

    def close(self) -> None:
        """Write the remaining rows and close the file."""
        self._stream.close()
        if self._writer is None:
            columns = {
                alias: _to_column(alias, _empty_output(spec))
                for alias, spec in sorted(self._signature.outputs.items())
            }
            self._writer = pq.ParquetWriter(self._path, pa.table(columns).schema)
        self._write_group()
        self._writer.close()

    def _append(self, rows: Any) -> None:
        """Add an Arrow record batch to the next row group of the Parquet file."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, rows.schema)
        self._group.append(rows)
        self._group_rows += rows.num_rows
        self._group_bytes += rows.nbytes
        if self._group_rows >= _GROUP_ROWS or self._group_bytes >= _GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group).combine_chunks())
        self._group = []
        self._group_rows = self._group_bytes = 0


def _to_column(alias: str, array: Array) -> Any:
    """Convert an output [rows, ...] to a pyarrow column of nested lists."""
    if array.dtype.hasobject:
        column = pa.array(array.reshape(-1).tolist(), pa.binary())
    elif array.dtype.kind == "c":
        raise CodedError(
            f"the output {alias!r} is {array.dtype}, which Parquet has no type for. Give "
            f"--output-format=prediction_logs.",
            Code.UNIMPLEMENTED,
        )
    else:
        column = pa.array(to_standard_dtype(array).reshape(-1))
    for axis in range(array.ndim - 1, 0, -1):
        size = array.shape[axis]
        count = int(np.prod(array.shape[:axis]))
        offsets = np.arange(count + 1, dtype=np.int64) * size
        column = pa.LargeListArray.from_arrays(offsets, column)
    return column


def _empty_output(spec: TensorSpec) -> Array:
    row_shape = (spec.shape or (None,))[1:]
    return np.zeros([0, *(size or 0 for size in row_shape)], tf.as_dtype(spec.dtype).as_numpy_dtype)
