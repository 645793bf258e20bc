"""Writes the outputs of a batch prediction to text files with a JSON object in each line."""

from collections.abc import Mapping
from typing import Any

import orjson

from tpuserve.errors import Code, CodedError
from tpuserve.prediction.batch import InputBatch, common_rows
from tpuserve.prediction.writers.append_file import AppendFile
from tpuserve.prediction.writers.columns import to_json_values
from tpuserve.runtime.loaded_model import Array

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


class JsonLinesWriter(AppendFile):
    """Writes a line with a JSON object, output alias → value, for each row of the outputs.

    The class implements `tpuserve.prediction.writers.Writer`. A row is one entry along the batch
    dimension.
    """

    def write(self, batch: InputBatch, outputs: Mapping[str, Array]) -> None:
        """Append a line for each row of a batch."""
        rows = common_rows(outputs, batch.where)
        columns = {alias: _to_column(alias, array) for alias, array in sorted(outputs.items())}
        self.append(
            orjson.dumps({alias: column[row] for alias, column in columns.items()}, None, _OPTIONS)
            for row in range(rows)
        )


def _to_column(alias: str, array: Array) -> Any:
    """Return the rows of an output as a list or array whose elements orjson can serialise."""
    if array.dtype.kind == "c":
        raise CodedError(
            f"the output {alias!r} is {array.dtype}, which JSON has no form for. Give "
            f"--output-format=prediction_logs.",
            Code.UNIMPLEMENTED,
        )
    return to_json_values(array)
