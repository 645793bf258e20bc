"""Encodes requests and decodes replies of TensorFlow Serving's gRPC API, for the clients.

Source: the .proto files in tensorflow_serving/apis.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from tpuserve.client.apis import tensor_proto
from tpuserve.client.apis.api import Api
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Steps, VersionStatus
from tpuserve.errors import InvalidReply
from tpuserve.proto import prediction_service_pb2 as pb
from tpuserve.saved_model.metagraph import signature_from_proto
from tpuserve.saved_model.signature import INIT_SIGNATURE, Signature

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
_STATE_NAMES = {number: name for name, number in pb.ModelVersionStatus.State.items()}
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"

MessageType = TypeVar("MessageType", bound=Message)


class GrpcV1(Api):
    """Encodes requests and decodes replies of TensorFlow Serving's gRPC API."""

    is_http = False

    def predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[dict[str, Array]]:
        """Run a signature of a model; the arguments are those of `Api.predict`."""
        reply = yield from self._request_prediction(model, inputs, signature_name, outputs)
        response = parse_message(pb.PredictResponse, reply)
        return tensor_proto.to_arrays(response.outputs)

    def encode_predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Array],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Call:
        """Encode a PredictRequest; the arguments are those of `Api.encode_predict`."""
        request = pb.PredictRequest(output_filter=outputs)
        set_model(request.model_spec, model)
        request.model_spec.signature_name = signature_name
        for name, array in inputs.items():
            tensor_proto.write_array(request.inputs[name], array, name)
        return Call(_PREDICT, request.SerializeToString())

    def signatures(self, model: ModelReference) -> Steps[Mapping[str, Signature]]:
        """Request the signatures of a model with GetModelMetadata."""
        request = pb.GetModelMetadataRequest(metadata_field=["signature_def"])
        set_model(request.model_spec, model)
        reply = yield Call(_METADATA, request.SerializeToString())
        response = parse_message(pb.GetModelMetadataResponse, reply)
        packed = Reply(response.metadata["signature_def"].value)
        definitions = parse_message(pb.SignatureDefMap, packed).signature_def
        return {
            name: signature_from_proto(definition)
            for name, definition in definitions.items()
            if name != INIT_SIGNATURE
        }

    def versions(self, name: str) -> Steps[list[VersionStatus]]:
        """Request the state of each version of a model with GetModelStatus."""
        reply = yield _status_call(ModelReference(name))
        return _decode_versions(reply)

    def _ready_call(self, model: ModelReference) -> Call:
        return _status_call(model, is_retried=False)

    def _says_ready(self, reply: Reply) -> bool:
        return any(version.state == "AVAILABLE" for version in _decode_versions(reply))


def parse_message(message_type: type[MessageType], reply: Reply) -> MessageType:
    """Parse the protobuf message in the body of a gRPC reply."""
    try:
        return message_type.FromString(reply.body)
    except DecodeError as error:
        raise InvalidReply(
            f"the server's answer is no {message_type.DESCRIPTOR.name}: {error}. Check that the "
            f"URL is that of a model server and that the API is the right one."
        ) from error


def _status_call(model: ModelReference, is_retried: bool = True) -> Call:
    request = pb.GetModelStatusRequest()
    set_model(request.model_spec, model)
    return Call(_STATUS, request.SerializeToString(), is_retried=is_retried)


def _decode_versions(reply: Reply) -> list[VersionStatus]:
    response = parse_message(pb.GetModelStatusResponse, reply)
    return [
        VersionStatus(
            status.version,
            _STATE_NAMES.get(status.state, str(status.state)),
            status.status.error_message,
        )
        for status in response.model_version_status
    ]


def set_model(spec: pb.ModelSpec, model: ModelReference) -> None:
    """Write the name of a model, and the selected version or label, to the spec of a request."""
    spec.name = model.name
    if model.version is not None:
        spec.version.value = model.version
    elif model.label:
        spec.version_label = model.label
