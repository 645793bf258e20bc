"""The methods GetModelStatus and GetModelMetadata.

Source: tensorflow_serving/apis/get_model_status.proto, get_model_metadata.proto.
"""

from functools import lru_cache
from typing import Any

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, model_pb2

from server.dataplane import DataPlane, ModelSpec
from server.frontends.grpc import errors
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.parsing import parse_message
from server.servables.servable import VersionStatus
from tpuserve.errors import InvalidInput


def decode_request_model_spec(request: Any) -> ModelSpec:
    """Return the model, version and signature that the field `model_spec` of a request names."""
    if not request.HasField("model_spec"):
        raise InvalidInput("Missing ModelSpec")
    if not request.model_spec.name:
        raise InvalidInput("ModelSpec has no name specified.")
    return decode_model_spec(request.model_spec)


def decode_model_spec(proto: Any) -> ModelSpec:
    """Return the model, version and signature that a ModelSpec message names.

    Unlike `decode_request_model_spec`, the function accepts a message without a model name.
    """
    version_choice = proto.WhichOneof("version_choice")
    if version_choice is None:
        return ModelSpec(proto.name, None, proto.signature_name)
    if version_choice == "version":
        return ModelSpec(proto.name, proto.version.value, proto.signature_name)
    return ModelSpec(proto.name, None, proto.signature_name, proto.version_label)


@lru_cache(maxsize=256)
def serialize_model_spec(model: str, version: int, signature_name: str = "") -> bytes:
    """Serialise the ModelSpec message of a response, with the version that has answered.

    Args:
      signature_name: the signature that has run; empty if the response names none.
    """
    proto = model_pb2.ModelSpec(name=model, signature_name=signature_name)
    proto.version.value = version
    return bytes(proto.SerializeToString())


class GetModelStatus:
    """The method GetModelStatus: returns the states of a model's versions."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane

    def __call__(self, raw: bytes | memoryview, call: CallContext) -> bytes:
        """Return the states of versions of a model, as a serialised GetModelStatusResponse.

        If the request names a version, the response has only this version; otherwise it has all
        versions, newest first.

        Raises:
          InvalidInput: the request cannot be parsed or has no `model_spec`, or the `model_spec` has
            no name.
        """
        message = parse_message(get_model_status_pb2.GetModelStatusRequest, raw)
        model_spec = call.model_spec = decode_request_model_spec(message)
        return _serialize_statuses(self._dataplane.status(model_spec.model, model_spec.version))


class GetModelMetadata:
    """The method GetModelMetadata: returns the signatures of a model."""

    def __init__(self, dataplane: DataPlane) -> None:
        self._dataplane = dataplane

    def __call__(self, raw: bytes | memoryview, call: CallContext) -> bytes:
        """Return all signatures of a model version, as a serialised GetModelMetadataResponse.

        Raises:
          InvalidInput: the request cannot be parsed or has no `model_spec`, the `model_spec` has no
            name, or a metadata field is not "signature_def".
        """
        message = parse_message(get_model_metadata_pb2.GetModelMetadataRequest, raw)
        model_spec = call.model_spec = decode_request_model_spec(message)
        metadata = self._dataplane.metadata(model_spec, list(message.metadata_field))
        call.version = metadata.version
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature_def in metadata.signature_defs.items():
            # Copy the signatures by serialising and parsing them: their Python class may differ
            # from the SignatureDef class of the response.
            serialized = (
                signature_def
                if isinstance(signature_def, bytes)
                else signature_def.SerializeToString()
            )
            signatures.signature_def[name].MergeFromString(serialized)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.MergeFromString(serialize_model_spec(metadata.model, metadata.version))
        response.metadata["signature_def"].Pack(signatures)
        return bytes(response.SerializeToString())


def _serialize_statuses(versions: list[VersionStatus]) -> bytes:
    """Serialise the states of the versions of a model as a GetModelStatusResponse."""
    response: Any = get_model_status_pb2.GetModelStatusResponse()
    for version in versions:
        proto = response.model_version_status.add(
            version=version.version, state=version.state.value
        )
        proto.status.SetInParent()
        if version.error is not None:
            proto.status.error_code = version.error.code.value
            proto.status.error_message = errors.to_utf8(str(version.error))
        else:
            proto.status.error_message = errors.to_utf8(version.note)
    return bytes(response.SerializeToString())
