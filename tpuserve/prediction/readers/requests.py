"""Reads TFRecord files whose records are PredictRequest or PredictionLog messages."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from tpuserve.errors import DamagedInputFile, InvalidInput
from tpuserve.prediction.batch import Batch
from tpuserve.prediction.readers.dataset import iterate_records
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature, find_signature


class _Request(NamedTuple):
    """A request of a file.

    Attributes:
      number: the position of the record in the file, from 0.
      signature_name: the signature to run.
      output_names: the outputs to compute; None computes all of them.
      inputs: input alias → array.
      serialised: the PredictRequest message.
      rows: the number of rows; None if the request may not be merged with others.
    """

    number: int
    signature_name: str
    output_names: tuple[str, ...] | None
    inputs: dict[str, Array]
    serialised: bytes
    rows: int | None

    @property
    def merge_key(self) -> Any:
        """A value that is equal for requests that can be merged."""
        if self.rows is None:
            return self.number
        tensors = sorted(
            (alias, array.dtype.str, array.shape[1:]) for alias, array in self.inputs.items()
        )
        return self.signature_name, self.output_names, tensors


def read_request_batches(
    path: str, signatures: Mapping[str, Signature], signature_name: str, batch_size: int
) -> Iterator[Batch]:
    """Yield the PredictRequests of a file in batches.

    Consecutive requests of the same signature and row shapes become one batch. A request whose
    tensors have no rows is a batch of its own.

    Args:
      path: the file.
      signatures: signature name → signature.
      signature_name: the signature of requests that name none.
      batch_size: the largest number of rows of merged requests.

    Raises:
      SignatureNotFound: the model has no signature that a request names.
      DamagedInputFile: the file cannot be read, or a record is damaged or is no PredictRequest.
      InvalidInput: a request has no inputs.
    """
    return _read(
        path, signatures, signature_name, batch_size, predict_pb2.PredictRequest.FromString
    )


def read_log_batches(
    path: str, signatures: Mapping[str, Signature], signature_name: str, batch_size: int
) -> Iterator[Batch]:
    """Yield the PredictRequests in the PredictionLogs of a file in batches.

    The arguments and errors are those of `read_request_batches`; a PredictionLog of another method
    than Predict is an InvalidInput too.
    """
    return _read(path, signatures, signature_name, batch_size, _parse_log)


def _read(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    parse: Callable[[bytes], Any],
) -> Iterator[Batch]:
    number = 0
    for records in iterate_records(path, batch_size):
        requests = [
            _decode(path, number + index, record, parse, signatures, signature_name)
            for index, record in enumerate(records)
        ]
        number += len(records)
        for _, group in groupby(requests, key=lambda request: request.merge_key):
            yield from _merge(path, list(group), batch_size)


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
) -> _Request:
    where = f"record {number} of {path}"
    try:
        message = parse(record)
        inputs = {alias: tf.make_ndarray(proto) for alias, proto in message.inputs.items()}
    except InvalidInput as error:
        raise InvalidInput(f"{where} {error}. Remove it, or choose another file.") from error
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        raise DamagedInputFile(
            f"{where} cannot be decoded: {error}. Choose the --input-format of the file, or write "
            f"it again; the same command then continues with this file."
        ) from error
    if not inputs:
        raise InvalidInput(f"{where} has no inputs. Choose the --input-format of the file.")
    name = message.model_spec.signature_name or signature_name
    signature = find_signature(signatures, name)
    return _Request(
        number,
        name,
        tuple(message.output_filter) or None,
        inputs,
        message.SerializeToString(),
        _count_rows(signature, inputs),
    )


def _count_rows(signature: Signature, inputs: Mapping[str, Array]) -> int | None:
    """Return the number of rows of a request; None if its tensors have no rows."""
    for spec in (*signature.inputs.values(), *signature.outputs.values()):
        if not spec.shape or spec.shape[0] is not None:
            return None
    counts = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return counts.pop() if len(counts) == 1 else None


def _merge(path: str, requests: list[_Request], batch_size: int) -> Iterator[Batch]:
    """Yield batches of consecutive requests that have the same `merge_key`."""
    begin, rows = 0, 0
    for index, request in enumerate(requests):
        count = request.rows or 0
        if index > begin and rows + count > batch_size:
            yield _to_batch(path, requests[begin:index])
            begin, rows = index, 0
        rows += count
    yield _to_batch(path, requests[begin:])


def _to_batch(path: str, requests: list[_Request]) -> Batch:
    first, last = requests[0], requests[-1]
    rows = [request.rows for request in requests if request.rows is not None]
    return Batch(
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
        [request.serialised for request in requests],
    )
