"""Reads the warm-up file of a SavedModel.

A warm-up file has requests that a server runs before the model receives requests of clients.

Source: TensorFlow Serving, servables/tensorflow/saved_model_warmup.cc. A warm-up file is a
TFRecord file of PredictionLog messages.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from tpuserve.errors import DamagedSavedModel
from tpuserve.proto import prediction_log_pb2 as pb
from tpuserve.proto import saved_model_pb2
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.proto_file import unreadable_error
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, TensorSpec
from tpuserve.saved_model.tfrecord import DamagedRecord, read_records
from tpuserve.saved_model.variables import shape_from_proto

PATH = Path("assets.extra", "tf_serving_warmup_requests")
EXAMPLES_ALIAS = "inputs"


@dataclass(frozen=True)
class WarmUpRecord:
    """One request of a warm-up file.

    Attributes:
      kind: the method of the request: "predict", "classify", "regress", "multi_inference",
        "session_run", "predict_streamed", or "unknown" for any other method.
      signature_name: the name of the signature; the names of several signatures are joined by
        commas; "" for a session run or an unknown method.
      inputs: input alias, or for a session run the name of the fed tensor → dtype and shape.
    """

    kind: str
    signature_name: str
    inputs: Mapping[str, TensorSpec]


def read_warm_up_file(directory: Path) -> tuple[WarmUpRecord, ...]:
    """Return the requests in the warm-up file of a SavedModel; empty if there is no such file.

    Raises:
      DamagedSavedModel: a record is truncated, has a wrong checksum, or is not a PredictionLog.
    """
    path = directory / PATH
    if not os.path.lexists(path):
        return ()
    return tuple(
        _parse_record(path, number, content)
        for number, content in enumerate(read_warm_up_records(path))
    )


def read_warm_up_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the records of a warm-up file; each is a serialised PredictionLog."""
    path = Path(path)
    try:
        yield from read_records(path)
    except DamagedRecord as error:
        raise _damaged_record_error(path, error.number, error.reason) from error
    except OSError as error:
        raise unreadable_error(path, error) from error


def _damaged_record_error(path: Path, number: int, reason: str) -> DamagedSavedModel:
    return DamagedSavedModel(
        f"record {number} of {path} is damaged: {reason}. Export the model again, or remove the "
        f"file to serve without warm-up."
    )


def _parse_record(path: Path, number: int, content: bytes) -> WarmUpRecord:
    log = pb.PredictionLog()
    try:
        log.ParseFromString(content)
    except DecodeError as error:
        raise _damaged_record_error(path, number, f"it is no PredictionLog ({error})") from error
    match log.WhichOneof("log_type"):
        case "predict_log":
            return _predict_record("predict", log.predict_log.request)
        case "predict_streamed_log":
            requests = log.predict_streamed_log.request
            request = requests[0] if requests else pb.PredictRequest()
            return _predict_record("predict_streamed", request)
        case "classify_log":
            classify = log.classify_log.request
            return _examples_record("classify", [classify.model_spec], classify.input)
        case "regress_log":
            regress = log.regress_log.request
            return _examples_record("regress", [regress.model_spec], regress.input)
        case "multi_inference_log":
            multi = log.multi_inference_log.request
            specs = [task.model_spec for task in multi.tasks]
            return _examples_record("multi_inference", specs, multi.input)
        case "session_run_log":
            feeds = log.session_run_log.request.feed
            inputs = {feed.name: _tensor_spec(feed.name, feed.tensor) for feed in feeds}
            return WarmUpRecord("session_run", "", inputs)
    return WarmUpRecord("unknown", "", {})


def _predict_record(kind: str, request: pb.PredictRequest) -> WarmUpRecord:
    inputs = {alias: _tensor_spec(alias, proto) for alias, proto in sorted(request.inputs.items())}
    return WarmUpRecord(kind, request.model_spec.signature_name or DEFAULT_SIGNATURE, inputs)


def _examples_record(kind: str, model_specs: list[pb.ModelSpec], message: pb.Input) -> WarmUpRecord:
    names = ", ".join(spec.signature_name or DEFAULT_SIGNATURE for spec in model_specs)
    if message.WhichOneof("kind") == "example_list_with_context":
        count = len(message.example_list_with_context.examples)
    else:
        count = len(message.example_list.examples)
    spec = TensorSpec(EXAMPLES_ALIAS, "string", (count,))
    return WarmUpRecord(kind, names, {EXAMPLES_ALIAS: spec})


def _tensor_spec(name: str, proto: saved_model_pb2.TensorProto) -> TensorSpec:
    return TensorSpec(name, dtypes.dtype_name(proto.dtype), shape_from_proto(proto.tensor_shape))
