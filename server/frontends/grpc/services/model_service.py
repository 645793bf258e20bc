"""What there is to be said of models: their status and their signatures."""

from typing import Any

from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from server.dataplane import DataPlane
from server.frontends.grpc import errors
from server.frontends.grpc.services import call_handler, model_spec
from server.frontends.grpc.services.call_context import CallContext
from server.servables.servable import VersionStatus


class GetModelStatus:
    """Answers from a data plane."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def __call__(self, raw: bytes, request: CallContext) -> bytes:
        """The state of every version of a model, or of one; newest first; labels do not count.

        Raises:
          InvalidInput: no model_spec, or no name in it.
          ModelNotFound: as of `DataPlane.status`.
        """
        message = call_handler.parse(get_model_status_pb2.GetModelStatusRequest, raw)
        target = request.target = model_spec.read_target(message)
        return _encode(self._dataplane.status(target.model, target.version))


class GetModelMetadata:
    """Answers from a data plane."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def __call__(self, raw: bytes, request: CallContext) -> bytes:
        """The signatures of a version, whole.

        Raises:
          InvalidInput: no model_spec, no name in it, or a field that is not "signature_def".
          ModelNotFound: there is no such model or version.
        """
        message = call_handler.parse(get_model_metadata_pb2.GetModelMetadataRequest, raw)
        target = request.target = model_spec.read_target(message)
        found = self._dataplane.metadata(target, list(message.metadata_field))
        request.version = found.version
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, each in found.signature_defs.items():
            # Messages of another class than the API's: their bytes are what they share.
            content = each if isinstance(each, bytes) else each.SerializeToString()
            signatures.signature_def[name].MergeFromString(content)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.MergeFromString(model_spec.encode(found.model, found.version))
        response.metadata["signature_def"].Pack(signatures)
        return bytes(response.SerializeToString())


def _encode(versions: list[VersionStatus]) -> bytes:
    response: Any = get_model_status_pb2.GetModelStatusResponse()
    for each in versions:
        status = response.model_version_status.add(version=each.version, state=each.state.value)
        status.status.SetInParent()
        if each.error is not None:
            status.status.error_code = each.error.code.value
            status.status.error_message = errors.to_utf8(str(each.error))
        else:
            status.status.error_message = errors.to_utf8(each.note)
    return bytes(response.SerializeToString())
