"""Converts the entries of the request log to lines of JSON: one for each row of a request.

`tpuserve predict` reads the lines as input, which is why "inputs" has its form.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson

from server.dataplane.results import Classification, Prediction, Regression
from server.request_log.log import InferenceLogEntry, PredictLogEntry
from server.servables.servable import Array
from tpuserve.prediction.log_line import LogLine
from tpuserve.prediction.writers.columns import to_json_values

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
# The aliases that the signatures of Classify and Regress have in TensorFlow Serving.
_INPUTS, _CLASSES, _SCORES, _VALUES = "inputs", "classes", "scores", "outputs"


def encode_lines(entry: PredictLogEntry | InferenceLogEntry, time_seconds: float) -> bytes:
    """Encode a request and its answer as lines of JSON.

    Each row, an index of the first dimension, has a line. If the tensors differ in their first
    dimensions, the request is one line, whose "row" is null.
    """
    time = datetime.fromtimestamp(time_seconds, UTC).isoformat(timespec="milliseconds")
    if isinstance(entry, PredictLogEntry):
        return b"".join(_lines(entry.answer, entry.inputs, entry.answer.outputs, time))
    examples = np.array(entry.examples, object)
    return b"".join(
        line
        for answer in entry.answers
        for line in _lines(answer, {_INPUTS: examples}, _outputs(answer), time)
    )


def _lines(
    answer: Prediction | Classification | Regression,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    time: str,
) -> Iterator[bytes]:
    counts = {len(array) if array.ndim else None for array in (*inputs.values(), *outputs.values())}
    count = counts.pop() if len(counts) == 1 else None
    all_inputs, all_outputs = _to_json(inputs), _to_json(outputs)
    for row in (None,) if count is None else range(count):
        line = LogLine(
            time=time,
            model=answer.model,
            version=answer.version,
            signature_name=answer.signature_name,
            row=row,
            inputs=_take_row(all_inputs, row),
            outputs=_take_row(all_outputs, row),
        )
        yield orjson.dumps(line, None, _OPTIONS)


def _take_row(values: dict[str, Any], row: int | None) -> dict[str, Any]:
    return values if row is None else {alias: value[row] for alias, value in values.items()}


def _outputs(answer: Classification | Regression) -> dict[str, Array]:
    if isinstance(answer, Regression):
        return {_VALUES: answer.values}
    outputs = {_CLASSES: answer.classes, _SCORES: answer.scores}
    return {alias: array for alias, array in outputs.items() if array is not None}


def _to_json(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {
        alias: to_json_values(array) if array.ndim else to_json_values(array[None])[0]
        for alias, array in arrays.items()
    }
