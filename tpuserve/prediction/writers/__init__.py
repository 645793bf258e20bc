"""Writes the output files of a batch prediction, in each of their formats."""

import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tpuserve.prediction.batch import Batch
from tpuserve.prediction.formats import OutputFormat
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature


class Writer(Protocol):
    """Writes one output file. Not thread-safe."""

    def write(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        """Append the outputs of a batch.

        Args:
          batch: the records.
          outputs: output alias → [rows, ...].
        """
        ...

    def close(self) -> None:
        """Complete and close the file."""
        ...


# A module is imported when its format is used: Parquet needs an extra.
_WRITERS = {
    OutputFormat.JSON_LINES: "tpuserve.prediction.writers.json_lines:JsonLinesWriter",
    OutputFormat.PARQUET: "tpuserve.prediction.writers.parquet:ParquetFileWriter",
    OutputFormat.PREDICTION_LOGS: "tpuserve.prediction.writers.tfrecords:PredictionLogWriter",
}


def open_writer(output_format: OutputFormat, path: Path, signature: Signature) -> Writer:
    """Create a file, and return the object that writes it.

    Args:
      output_format: the format of the file.
      path: the file.
      signature: the signature that runs, whose outputs are the columns of a table.
    """
    writer: Writer = pkgutil.resolve_name(_WRITERS[output_format])(path, signature)
    return writer
