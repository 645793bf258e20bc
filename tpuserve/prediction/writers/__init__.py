"""Writes the output files of a batch prediction, with one module for each file format."""

import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.formats import OutputFormat
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature


class Writer(Protocol):
    """The interface of a writer of one output file. An instance is not thread-safe."""

    def write(self, batch: InputBatch, outputs: Mapping[str, Array]) -> None:
        """Append the outputs of a batch to the file."""
        ...

    def sync(self) -> Path:
        """Write all rows so far to the disk, so that a later writer can continue the output file.

        Returns:
          The file that the later writer needs: the output file itself, or for Parquet a second file
          with the same rows.
        """
        ...

    def close(self) -> None:
        """Write what is still in memory, and close the file."""
        ...


# Output format → the module and the class of its writer. A module is imported only when its format
# is used, because Parquet needs a package that may not be installed.
_WRITERS = {
    OutputFormat.JSON_LINES: "tpuserve.prediction.writers.json_lines:JsonLinesWriter",
    OutputFormat.PARQUET: "tpuserve.prediction.writers.parquet:ParquetFileWriter",
    OutputFormat.PREDICTION_LOGS: "tpuserve.prediction.writers.tfrecords:PredictionLogWriter",
}


def open_writer(
    output_format: OutputFormat, path: Path, signature: Signature, size: int = 0
) -> Writer:
    """Create an output file or continue one that an earlier run has begun; return its writer.

    Args:
      size: the number of bytes to keep of the file that `Writer.sync` of the earlier writer
        returned; 0 to create the output file.
    """
    # Pass the signature only to the Parquet writer, which needs it for the columns of a file
    # without rows.
    arguments = (signature,) if output_format is OutputFormat.PARQUET else ()
    writer: Writer = pkgutil.resolve_name(_WRITERS[output_format])(path, size, *arguments)
    return writer
