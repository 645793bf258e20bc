"""Reads TFRecord files of PredictRequest or PredictionLog messages, and merges small requests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from tpuserve.errors import Code, CodedError, InvalidInput
from tpuserve.prediction.batch import InputBatch, Position
from tpuserve.prediction.readers.dataset import iterate_records
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature, find_signature


class _PredictRecord(NamedTuple):
    """A PredictRequest of an input file."""

    number: int
    signature_name: str
    output_names: tuple[str, ...] | None
    inputs: dict[str, Array]
    message: bytes
    rows: int | None

    @property
    def merge_key(self) -> Any:
        """A key that is equal for two requests exactly if one batch can hold both."""
        if self.rows is None:
            return self.number
        tensors = sorted(
            (alias, array.dtype.str, array.shape[1:]) for alias, array in self.inputs.items()
        )
        return self.signature_name, self.output_names, tensors


def read_request_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
) -> Iterator[InputBatch]:
    """Yield the PredictRequests of a TFRecord file in batches.

    Consecutive requests are merged into one batch if they have the same signature and their tensors
    differ only in the size of the batch dimension.

    Args:
      batch_size: the largest number of rows, along the batch dimension, of merged requests.
    """
    parse = predict_pb2.PredictRequest.FromString
    return _read_batches(path, signatures, signature_name, batch_size, start, parse)


def read_log_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
) -> Iterator[InputBatch]:
    """Yield, in batches, the PredictRequests in the PredictionLogs of a TFRecord file.

    The arguments and errors are those of `read_request_batches`. A PredictionLog of a method other
    than Predict also raises InvalidInput.
    """
    return _read_batches(path, signatures, signature_name, batch_size, start, _parse_log)


def _read_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
    parse: Callable[[bytes], Any],
) -> Iterator[InputBatch]:
    number = start.records
    for records, end in iterate_records(path, batch_size, start):
        requests = [
            _decode(path, number + index, record, parse, signatures, signature_name)
            for index, record in enumerate(records)
        ]
        number = end.records
        yield from _mark_last(_merge_groups(path, requests, batch_size), end)


def _parse_log(record: bytes) -> Any:
    log = prediction_log_pb2.PredictionLog.FromString(record)
    kind = log.WhichOneof("log_type")
    if kind != "predict_log":
        raise InvalidInput(f"is a {kind or 'PredictionLog without content'}, not a predict_log")
    return log.predict_log.request


def _decode(
    path: str,
    number: int,
    record: bytes,
    parse: Callable[[bytes], Any],
    signatures: Mapping[str, Signature],
    signature_name: str,
) -> _PredictRecord:
    where = f"record {number} of {path}"
    try:
        message = parse(record)
        inputs = {alias: tf.make_ndarray(proto) for alias, proto in message.inputs.items()}
    except InvalidInput as error:
        raise InvalidInput(f"{where} {error}. Remove it, or choose another file.") from error
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        raise CodedError(
            f"{where} cannot be decoded: {error}. Choose the --input-format of the file, or write "
            f"it again; the same command then continues with this file.",
            Code.DATA_LOSS,
        ) from error
    if not inputs:
        raise InvalidInput(f"{where} has no inputs. Choose the --input-format of the file.")
    name = message.model_spec.signature_name or signature_name
    signature = find_signature(signatures, name)
    return _PredictRecord(
        number,
        name,
        tuple(message.output_filter) or None,
        inputs,
        message.SerializeToString(),
        _count_rows(signature, inputs),
    )


def _count_rows(signature: Signature, inputs: Mapping[str, Array]) -> int | None:
    for spec in (*signature.inputs.values(), *signature.outputs.values()):
        if not spec.shape or spec.shape[0] is not None:
            return None
    counts = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return counts.pop() if len(counts) == 1 else None


def _mark_last(batches: Iterator[InputBatch], end: Position) -> Iterator[InputBatch]:
    last = next(batches)
    for batch in batches:
        yield last
        last = batch
    yield replace(last, end=end)


def _merge_groups(
    path: str, requests: Sequence[_PredictRecord], batch_size: int
) -> Iterator[InputBatch]:
    for _, group in groupby(requests, key=lambda request: request.merge_key):
        yield from _merge(path, list(group), batch_size)


def _merge(path: str, requests: list[_PredictRecord], batch_size: int) -> Iterator[InputBatch]:
    begin, rows = 0, 0
    for index, request in enumerate(requests):
        count = request.rows or 0
        if index > begin and rows + count > batch_size:
            yield _to_batch(path, requests[begin:index])
            begin, rows = index, 0
        rows += count
    yield _to_batch(path, requests[begin:])


def _to_batch(path: str, requests: list[_PredictRecord]) -> InputBatch:
    first, last = requests[0], requests[-1]
    rows = [request.rows for request in requests if request.rows is not None]
    return InputBatch(
        f"{path}, records {first.number} to {last.number}",
        first.inputs
        if len(requests) == 1
        else {
            alias: np.concatenate([request.inputs[alias] for request in requests])
            for alias in first.inputs
        },
        rows or None,
        first.signature_name,
        first.output_names,
        [request.message for request in requests],
    )
