"""Reads the requests of a comparison from request logs, or makes them from arrays."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from google.protobuf.message import DecodeError

from tpuserve.client.apis import tensor_proto
from tpuserve.client.arrays import Array
from tpuserve.errors import InvalidInput
from tpuserve.proto import prediction_service_pb2 as pb
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE
from tpuserve.saved_model.tfrecord import DamagedRecord, read_records

Method: TypeAlias = Literal["predict", "classify", "regress", "multi_inference"]

METHODS: Sequence[Method] = ("predict", "classify", "regress", "multi_inference")
_LOG_SUFFIX, _JSON_SUFFIX = ".tfrecord", ".jsonl"


@dataclass(frozen=True)
class Request:
    """A request that both sides of a comparison answer.

    Attributes:
      where: the record that the request is from, such as "record 3 of half.tfrecord".
      signatures: the names of the signatures; several only for MultiInference.
      message: the request message of the method.
      record: the serialised PredictionLog of the request.
    """

    where: str
    method: Method
    signatures: tuple[str, ...]
    message: Any
    record: bytes = field(repr=False)


@dataclass(frozen=True)
class Source:
    """A source of records: serialised PredictionLogs.

    Attributes:
      name: the path of a file, or a description.
      size: the size of the file in bytes; otherwise 0.
      read: yields the records.
    """

    name: str
    size: int
    read: Callable[[], Iterable[bytes]]


class Requests:
    """The requests of a comparison, which may be iterated over several times.

    Attributes:
      signatures: the signatures whose requests are sent; empty for all.
      left_out: why records were left out by the last iteration → their number.
      damages: a sentence for each file whose end the last iteration could not read.

    Args:
      models: the names of the models whose requests are sent.
      methods: the methods whose requests are sent.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        models: Collection[str],
        signatures: Collection[str],
        methods: Collection[Method],
    ) -> None:
        self.signatures = signatures
        self.sources = sources
        self.left_out: Counter[str] = Counter()
        self.damages: list[str] = []
        self._models = models
        self._methods = methods

    def __iter__(self) -> Iterator[Request]:
        """Yield the requests in order."""
        self.left_out.clear()
        self.damages.clear()
        for source in self.sources:
            name = source.name.rpartition("/")[2]
            try:
                for number, record in enumerate(source.read()):
                    request = self._parse(record, f"record {number} of {name}")
                    if isinstance(request, Request):
                        yield request
                    else:
                        self.left_out[request] += 1
            except DamagedRecord as error:
                self.damages.append(
                    f"{source.name} ends at record {error.number}, which is damaged: {error.reason}"
                )

    def _parse(self, record: bytes, where: str) -> Request | str:
        """Return the request in a record, or why the record is left out."""
        try:
            log = pb.PredictionLog.FromString(record)
        except DecodeError:
            return "no PredictionLog"
        kind = log.WhichOneof("log_type")
        if kind is None:
            return "a method that is never compared"
        method: Any = kind.removesuffix("_log")
        message = getattr(log, kind).request
        specs = [each.model_spec for each in getattr(message, "tasks", (message,))]
        names = tuple(spec.signature_name or DEFAULT_SIGNATURE for spec in specs)
        models = {spec.name for spec in specs} - {"", *self._models}
        if models:
            return f"model {', '.join(sorted(models))}"
        if method not in self._methods:
            return f"{method}, which the API of a side does not have"
        if self.signatures and not set(names) <= set(self.signatures):
            return "another signature"
        return Request(where, method, names, message, record)


def find_log_files(paths: Iterable[Path]) -> list[Source]:
    """Return the request logs that paths name; a directory stands for its *.tfrecord files."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob(f"*{_LOG_SUFFIX}")) if path.is_dir() else [path]
        if path.suffix == _JSON_SUFFIX or (not found and any(path.glob(f"*{_JSON_SUFFIX}"))):
            raise InvalidInput(
                f"{path} is a request log in JSON, whose rows are no longer requests. Log without "
                f"a format, which gives *{_LOG_SUFFIX} files, and name those."
            )
        if not found:
            raise InvalidInput(
                f"{path} has no *{_LOG_SUFFIX} file. Name the directory to which the server writes "
                f"its request log, or the files."
            )
        files += found
    return [
        Source(str(path.resolve()), path.stat().st_size, partial(read_records, path))
        for path in files
    ]


def predict_record(signature_name: str, inputs: Mapping[str, Array]) -> bytes:
    """Return the PredictionLog of a Predict request.

    Args:
      signature_name: the name of the signature; "" for "serving_default".
      inputs: alias → array; strings as object arrays of bytes.
    """
    log = pb.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature_name
    for name, array in inputs.items():
        tensor_proto.write_array(request.inputs[name], array, name)
    return log.SerializeToString()
