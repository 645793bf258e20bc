"""Reads the input files of a batch prediction, with one module for each kind of file format."""

from collections.abc import Callable, Iterator, Mapping

from tpuserve.prediction.batch import InputBatch, Position
from tpuserve.prediction.formats import InputFormat
from tpuserve.prediction.readers.examples import read_example_batches
from tpuserve.prediction.readers.json_lines import read_json_batches
from tpuserve.prediction.readers.requests import read_log_batches, read_request_batches
from tpuserve.saved_model.signature import Signature

ReadBatches = Callable[[str, Mapping[str, Signature], str, int, Position], Iterator[InputBatch]]
"""(file, signature name → signature, signature to run, rows of a batch, start) → batches."""

READERS: dict[InputFormat, ReadBatches] = {
    InputFormat.EXAMPLES: read_example_batches,
    InputFormat.JSON_LINES: read_json_batches,
    InputFormat.PREDICTION_LOGS: read_log_batches,
    InputFormat.REQUESTS: read_request_batches,
}
