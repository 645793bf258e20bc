"""Defines a batch: records of an input file that the model predicts in one run.

In this package, a row is one entry along the batch dimension of the inputs and outputs. A record
that is a request may have several rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpuserve.errors import Code, CodedError
from tpuserve.runtime.loaded_model import Array


@dataclass(frozen=True)
class Position:
    """A position between two records of an input file, from which a reader can start.

    The default values are the beginning of the file.

    Attributes:
      records: the number of records before the position. In a text file, each line is a record,
        also an empty line.
      size: the number of bytes that these records take in the file, after decompression; always 0
        in a text file, whose readers do not need it.
    """

    records: int = 0
    size: int = 0


@dataclass(frozen=True)
class InputBatch:
    """Consecutive records of an input file that the model predicts in one run.

    Attributes:
      inputs: input alias → array [rows, ...] in the dtype of the signature.
      row_counts: the number of rows of each record along the batch dimension. None if the batch is
        a single request without a common batch dimension, whose tensors must not be split.
      output_names: the aliases of the outputs to compute; None for all outputs.
      requests: a serialised PredictRequest for each record; empty if the records of the file are
        not requests, such as tf.train.Examples.
      version: the version of the model that the requests name; None for the model of the run.
      end: the position behind the last record of the batch, where a later run can resume. None if
        a run that resumes there would form other batches from the remaining records.
    """

    where: str
    inputs: Mapping[str, Array]
    row_counts: Sequence[int] | None
    signature_name: str
    output_names: Sequence[str] | None = None
    requests: Sequence[bytes] = ()
    end: Position | None = None
    version: int | None = None

    @property
    def rows(self) -> int:
        """The size of the batch dimension; 1 if the inputs have no common batch dimension."""
        if self.row_counts is not None:
            return sum(self.row_counts)
        counts = {array.shape[0] if array.ndim else None for array in self.inputs.values()}
        (count,) = counts if len(counts) == 1 else (None,)
        return 1 if count is None else count


def common_rows(outputs: Mapping[str, Array], where: str) -> int:
    """Return the size of the first dimension of the outputs, which all outputs must share."""
    rows = {array.shape[0] if array.ndim else -1 for array in outputs.values()}
    if len(rows) != 1 or -1 in rows:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
        raise CodedError(
            f"{where}: the outputs have no common number of rows: {shapes}. Write them with "
            f"--output-format=prediction_logs, which keeps whole tensors.",
            Code.FAILED_PRECONDITION,
        )
    return rows.pop()
