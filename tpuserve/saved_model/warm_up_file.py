"""The requests that a server runs before a model answers clients.

Source: TensorFlow Serving, servables/tensorflow/saved_model_warmup.cc; the framing of records is
that of tensorflow/core/lib/io/record_writer.h.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
from google.protobuf.message import DecodeError

from tpuserve.errors import DamagedSavedModel
from tpuserve.proto import prediction_log_pb2 as pb
from tpuserve.proto import saved_model_pb2
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.proto_file import unreadable_error
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, TensorSpec
from tpuserve.saved_model.variables import shape_from_proto

PATH = Path("assets.extra", "tf_serving_warmup_requests")
EXAMPLES_ALIAS = "inputs"

_LENGTH = struct.Struct("<QI")
_CHECKSUM_SIZE = 4


@dataclass(frozen=True)
class WarmUpRecord:
    """One request of a warm-up file.

    Attributes:
      kind: the API it is for: "predict", "classify", "regress", "multi_inference",
        "session_run", "predict_streamed", or "unknown" where the record does not say.
      signature_name: what it calls; of several, joined by commas; "" for a session run.
      inputs: alias → the tensor that is sent, its name being the alias. Examples are a string
        tensor "inputs" of their number. Of a stream, the first request's.
    """

    kind: str
    signature_name: str
    inputs: Mapping[str, TensorSpec]


def read_warm_up_file(directory: Path) -> tuple[WarmUpRecord, ...]:
    """The requests in the warm-up file of a SavedModel, in order; none if it has no such file.

    Raises:
      DamagedSavedModel: a record is cut, contradicts its checksum, or is no PredictionLog.
    """
    path = directory / PATH
    if not os.path.lexists(path):
        return ()
    return tuple(_record(path, number, each) for number, each in enumerate(records(path)))


def records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Each record of a TFRecord file, which for a warm-up file is a serialized PredictionLog.

    Raises:
      DamagedSavedModel: the file cannot be read, a record is cut, or a checksum is wrong.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            left = os.fstat(file.fileno()).st_size
            number = 0
            while left:
                head = file.read(_LENGTH.size)
                if len(head) < _LENGTH.size:
                    raise _damaged(path, number, "the file ends within its length")
                length, checksum = _LENGTH.unpack(head)
                if checksum != _masked_crc(head[:8]):
                    raise _damaged(path, number, "its length has a wrong checksum")
                left -= _LENGTH.size + length + _CHECKSUM_SIZE
                if left < 0:
                    raise _damaged(path, number, f"the file ends {-left} bytes too early")
                content = file.read(length)
                checksum = int.from_bytes(file.read(_CHECKSUM_SIZE), "little")
                if checksum != _masked_crc(content):
                    raise _damaged(path, number, "its content has a wrong checksum")
                yield content
                number += 1
    except OSError as error:
        raise unreadable_error(path, error) from error


def _masked_crc(data: bytes) -> int:
    # Masked, because a checksum of data that holds checksums is a weak one.
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _damaged(path: Path, number: int, why: str) -> DamagedSavedModel:
    return DamagedSavedModel(
        f"record {number} of {path} is damaged: {why}. Export the model again, or remove the "
        f"file to serve without warm-up."
    )


def _record(path: Path, number: int, content: bytes) -> WarmUpRecord:
    log = pb.PredictionLog()
    try:
        log.ParseFromString(content)
    except DecodeError as error:
        raise _damaged(path, number, f"it is no PredictionLog ({error})") from error
    match log.WhichOneof("log_type"):
        case "predict_log":
            return _predict("predict", log.predict_log.request)
        case "predict_streamed_log":
            requests = log.predict_streamed_log.request
            return _predict("predict_streamed", requests[0] if requests else pb.PredictRequest())
        case "classify_log":
            classify = log.classify_log.request
            return _examples("classify", [classify.model_spec], classify.input)
        case "regress_log":
            regress = log.regress_log.request
            return _examples("regress", [regress.model_spec], regress.input)
        case "multi_inference_log":
            multi = log.multi_inference_log.request
            return _examples("multi_inference", [t.model_spec for t in multi.tasks], multi.input)
        case "session_run_log":
            feed = log.session_run_log.request.feed
            return WarmUpRecord(
                "session_run", "", {each.name: _spec(each.name, each.tensor) for each in feed}
            )
    return WarmUpRecord("unknown", "", {})


def _predict(kind: str, request: pb.PredictRequest) -> WarmUpRecord:
    inputs = {alias: _spec(alias, each) for alias, each in sorted(request.inputs.items())}
    return WarmUpRecord(kind, request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs)


def _examples(kind: str, called: list[pb.ModelSpec], sent: pb.Input) -> WarmUpRecord:
    names = ", ".join(each.signature_name or DEFAULT_SIGNATURE for each in called)
    with_context = sent.WhichOneof("kind") == "example_list_with_context"
    count = len((sent.example_list_with_context if with_context else sent.example_list).examples)
    return WarmUpRecord(
        kind, names, {EXAMPLES_ALIAS: TensorSpec(EXAMPLES_ALIAS, "string", (count,))}
    )


def _spec(name: str, proto: saved_model_pb2.TensorProto) -> TensorSpec:
    return TensorSpec(name, dtypes.dtype_name(proto.dtype), shape_from_proto(proto.tensor_shape))
