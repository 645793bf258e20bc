"""Writes the results of a batch prediction to TFRecord files of PredictionLog messages."""

from collections.abc import Mapping
from pathlib import Path

from tpuserve.prediction import prediction_logs
from tpuserve.prediction.batch import Batch
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.tfrecord import frame_records


class PredictionLogWriter:
    """Writes a PredictionLog, with inputs and outputs, for each record of the input file.

    The class implements `tpuserve.prediction.writers.Writer`.
    """

    def __init__(self, path: Path, signature: Signature) -> None:
        """Create the file; the signature is not used."""
        self._file = open(path, "wb")  # noqa: SIM115

    def write(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        """Append a PredictionLog for each record of a batch.

        Args:
          batch: the records that were predicted.
          outputs: output alias → array [rows, ...].
        """
        self._file.write(frame_records(prediction_logs.encode_batch(batch, outputs)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
