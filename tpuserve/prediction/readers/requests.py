"""Reads TFRecord files of PredictRequest or PredictionLog messages, and merges small requests.

A Classify or Regress request runs as the Predict request with the same Examples.
"""

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
from tpuserve.prediction.readers.examples import ExampleParser
from tpuserve.runtime.loaded_model import Array
from tpuserve.samples.warm_up_inputs import serialize_examples
from tpuserve.saved_model.signature import Signature, find_signature

SignaturesOfVersion = Callable[[int], Mapping[str, Signature]]

_LOGS = ("predict_log", "classify_log", "regress_log")


class _PredictRecord(NamedTuple):
    """A PredictRequest of an input file."""

    number: int
    signature_name: str
    output_names: tuple[str, ...] | None
    inputs: dict[str, Array]
    message: bytes
    rows: int | None
    version: int | None

    @property
    def merge_key(self) -> Any:
        """A key that is equal for two requests exactly if one batch can hold both."""
        if self.rows is None:
            return self.number
        tensors = sorted(
            (alias, array.dtype.str, array.shape[1:]) for alias, array in self.inputs.items()
        )
        return self.version, self.signature_name, self.output_names, tensors


def read_request_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
    signatures_of_version: SignaturesOfVersion | None = None,
) -> Iterator[InputBatch]:
    """Yield the PredictRequests of a TFRecord file in batches.

    Consecutive requests are merged into one batch if they have the same signature and their tensors
    differ only in the size of the batch dimension.

    Args:
      batch_size: the largest number of rows, along the batch dimension, of merged requests.
      signatures_of_version: returns the signatures of the version that a request names; None to
        ignore the versions that requests name.
    """
    parse = predict_pb2.PredictRequest.FromString
    decoder = _Decoder(path, parse, signatures, signature_name, signatures_of_version)
    return _read_batches(path, decoder, batch_size, start)


def read_log_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
    signatures_of_version: SignaturesOfVersion | None = None,
) -> Iterator[InputBatch]:
    """Yield, in batches, the Predict, Classify and Regress requests in a file of PredictionLogs.

    The arguments and errors are those of `read_request_batches`. A PredictionLog of another method
    also raises InvalidInput.
    """
    decoder = _Decoder(path, _parse_log, signatures, signature_name, signatures_of_version)
    return _read_batches(path, decoder, batch_size, start)


def _read_batches(
    path: str, decoder: "_Decoder", batch_size: int, start: Position
) -> Iterator[InputBatch]:
    number = start.records
    for records, end in iterate_records(path, batch_size, start):
        requests = [decoder.decode(number + index, record) for index, record in enumerate(records)]
        number = end.records
        yield from _mark_last(_merge_groups(path, requests, batch_size), end)


def _parse_log(record: bytes) -> Any:
    log = prediction_log_pb2.PredictionLog.FromString(record)
    kind = log.WhichOneof("log_type")
    if kind not in _LOGS:
        found = kind or "PredictionLog without content"
        raise InvalidInput(f"it is a {found}, not a {', '.join(_LOGS[:-1])} or {_LOGS[-1]}")
    return getattr(log, kind).request


class _Decoder:
    """Decodes the records of an input file."""

    def __init__(
        self,
        path: str,
        parse: Callable[[bytes], Any],
        signatures: Mapping[str, Signature],
        signature_name: str,
        signatures_of_version: SignaturesOfVersion | None,
    ) -> None:
        self._path = path
        self._parse = parse
        self._signatures = signatures
        self._signature_name = signature_name
        self._signatures_of_version = signatures_of_version
        self._parsers: dict[tuple[int | None, str], ExampleParser] = {}

    def decode(self, number: int, record: bytes) -> _PredictRecord:
        """Decode the record with a number."""
        where = f"record {number} of {self._path}"
        try:
            message = self._parse(record)
            name = message.model_spec.signature_name or self._signature_name
            version = self._version(message)
            signature = find_signature(self._find_signatures(version), name)
            if isinstance(message, predict_pb2.PredictRequest):
                inputs = {alias: tf.make_ndarray(proto) for alias, proto in message.inputs.items()}
            else:
                examples = serialize_examples(message.input)
                if (version, name) not in self._parsers:
                    self._parsers[version, name] = ExampleParser(signature.inputs)
                parser = self._parsers[version, name]
                inputs = parser.to_inputs(examples, "its examples") if len(examples) else {}
                message = predict_pb2.PredictRequest(model_spec=message.model_spec)
                for alias, array in inputs.items():
                    message.inputs[alias].CopyFrom(tf.make_tensor_proto(array))
        except InvalidInput as error:
            text = str(error).rstrip(".")
            raise InvalidInput(f"{where}: {text}. Remove it, or choose another file.") from error
        except (DecodeError, ValueError, TypeError, KeyError) as error:
            raise CodedError(
                f"{where} cannot be decoded: {error}. Choose the --input-format of the file, or "
                f"write it again; the same command then continues with this file.",
                Code.DATA_LOSS,
            ) from error
        if not inputs:
            raise InvalidInput(f"{where} has no inputs. Choose the --input-format of the file.")
        return _PredictRecord(
            number,
            name,
            tuple(message.output_filter) or None,
            inputs,
            message.SerializeToString(),
            _count_rows(signature, inputs),
            version,
        )

    def _version(self, message: Any) -> int | None:
        spec = message.model_spec
        is_named = self._signatures_of_version and spec.WhichOneof("version_choice") == "version"
        return spec.version.value if is_named else None

    def _find_signatures(self, version: int | None) -> Mapping[str, Signature]:
        if version is None or self._signatures_of_version is None:
            return self._signatures
        return self._signatures_of_version(version)


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
        version=first.version,
    )
