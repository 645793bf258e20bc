"""Writes TFRecord files of PredictionLog messages."""

from collections.abc import Mapping
from pathlib import Path

from tpuserve.prediction import prediction_logs
from tpuserve.prediction.batch import Batch
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.tfrecord import frame_records


class PredictionLogWriter:
    """Writes a PredictionLog for each record. Implements `Writer`, which documents the methods."""

    def __init__(self, path: Path, signature: Signature) -> None:
        """Create the file."""
        self._file = open(path, "wb")  # noqa: SIM115

    def write(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        """Append a record for each record of a batch; see `Writer.write`."""
        self._file.write(frame_records(prediction_logs.encode_batch(batch, outputs)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
