"""The inputs of one run of the model, and the records that they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpuserve.errors import UnbatchableTensor
from tpuserve.runtime.loaded_model import Array


@dataclass(frozen=True)
class Batch:
    """Consecutive records of an input file, as the inputs of one run.

    Attributes:
      where: the file and the numbers of the records, for error messages.
      inputs: input alias → [rows, ...] in the dtype of the signature.
      row_counts: the number of rows of each record. None if the batch is one request that may not
        be merged with others, and whose outputs may have no rows.
      signature_name: the signature to run.
      output_names: the outputs to compute; None computes all of them.
      requests: a serialised PredictRequest for each record; empty if records are rows and no
        requests.
    """

    where: str
    inputs: Mapping[str, Array]
    row_counts: Sequence[int] | None
    signature_name: str
    output_names: Sequence[str] | None = None
    requests: Sequence[bytes] = ()

    @property
    def rows(self) -> int:
        """The number of rows of all records; 1 if the inputs have no common number of rows."""
        if self.row_counts is not None:
            return sum(self.row_counts)
        counts = {array.shape[0] if array.ndim else None for array in self.inputs.values()}
        (count,) = counts if len(counts) == 1 else (None,)
        return 1 if count is None else count


def common_rows(outputs: Mapping[str, Array], where: str) -> int:
    """Return the number of rows that all outputs have.

    Args:
      outputs: output alias → [rows, ...].
      where: the file and the numbers of the records, for error messages.

    Raises:
      UnbatchableTensor: the outputs have no common number of rows.
    """
    rows = {array.shape[0] if array.ndim else -1 for array in outputs.values()}
    if len(rows) != 1 or -1 in rows:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
        raise UnbatchableTensor(
            f"{where}: the outputs have no common number of rows: {shapes}. Write them with "
            f"--output-format=prediction_logs, which keeps whole tensors."
        )
    return rows.pop()
