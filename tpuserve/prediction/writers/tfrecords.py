"""Writes the results of a batch prediction to TFRecord files of PredictionLog messages."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tpuserve.prediction import prediction_logs
from tpuserve.prediction.batch import InputBatch
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.tfrecord import frame_records


class AppendFile:
    """A file to which bytes are appended. The bytes that `sync` has written never change.

    Args:
      size: the number of bytes to keep; 0 to create the file.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self._file = open(path, "rb+" if size else "wb")  # noqa: SIM115
        self._file.truncate(size)
        self._file.seek(size)

    def append(self, parts: Iterable[bytes]) -> None:
        """Append the bytes of all parts, in their order. They may stay in memory until `sync`."""
        self._file.writelines(parts)

    def sync(self) -> Path:
        """Write all appended bytes to the disk, and return the path of the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.path

    def close(self) -> None:
        """Write the bytes that are still in memory, and close the file."""
        self._file.close()


class PredictionLogWriter(AppendFile):
    """Writes a PredictionLog, with inputs and outputs, for each record of the input file.

    The class implements `tpuserve.prediction.writers.Writer`.
    """

    def write(self, batch: InputBatch, outputs: Mapping[str, Array]) -> None:
        """Append a PredictionLog for each record of a batch."""
        self.append([frame_records(prediction_logs.encode_batch(batch, outputs))])
