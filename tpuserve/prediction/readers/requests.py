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
    """A PredictRequest of an input file.

    Attributes:
      number: the position of the record in the file, from 0.
      signature_name: the signature to run.
      output_names: the aliases of the outputs to compute; None for all outputs.
      inputs: input alias → array.
      message: the serialised PredictRequest message.
      rows: the size of the batch dimension; None if the request must run alone, because its
        tensors have no common batch dimension.
    """

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
    differ only in the size of the batch dimension. A request without a batch dimension is a batch
    by itself.

    Args:
      path: the file.
      signatures: signature name → signature, for all signatures of the model.
      signature_name: the signature to run for requests that name no signature.
      batch_size: the largest number of rows, along the batch dimension, of merged requests.
      start: the position of the first record to read.

    Raises:
      SignatureNotFound: a request names a signature that the model does not have.
      CodedError: the file cannot be read, or a record is damaged or not a PredictRequest.
      InvalidInput: a request has no inputs.
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
    """Return the size of the batch dimension of a request.

    Args:
      signature: the signature of the request.
      inputs: input alias → array.

    Returns:
      The size of the first dimension. None if the inputs differ in this size, or if an input or
      output of the signature does not have a first dimension of unknown size.
    """
    for spec in (*signature.inputs.values(), *signature.outputs.values()):
        if not spec.shape or spec.shape[0] is not None:
            return None
    counts = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return counts.pop() if len(counts) == 1 else None


def _mark_last(batches: Iterator[InputBatch], end: Position) -> Iterator[InputBatch]:
    """Yield batches, and set the attribute `end` of the last batch.

    A group is the records that are read from the file together. Only requests of the same group are
    merged into a batch. A later run can continue at the `end` of a batch. Only the last batch of a
    group has an `end`, because a run that continued in the middle of a group would merge other
    requests.

    Args:
      batches: the batches of one group of records; at least one.
      end: the position behind the group.
    """
    last = next(batches)
    for batch in batches:
        yield last
        last = batch
    yield replace(last, end=end)


def _merge_groups(
    path: str, requests: Sequence[_PredictRecord], batch_size: int
) -> Iterator[InputBatch]:
    """Merge consecutive requests with the same `merge_key` into batches; see `_merge`."""
    for _, group in groupby(requests, key=lambda request: request.merge_key):
        yield from _merge(path, list(group), batch_size)


def _merge(path: str, requests: list[_PredictRecord], batch_size: int) -> Iterator[InputBatch]:
    """Merge requests of the same signature and shapes into batches of at most `batch_size` rows.

    Args:
      path: the file, for error messages.
      requests: consecutive requests of the file, all with the same `merge_key`.
      batch_size: the largest number of rows of a batch; a larger request is a batch by itself.
    """
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
