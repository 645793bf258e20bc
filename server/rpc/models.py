"""ModelService: GetModelStatus."""

from typing import Any

import grpc
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

from server.dataplane import DataPlane
from server.rpc import errors, specs
from server.servable import VersionStatus


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Answers from a data plane; what it does not offer is UNIMPLEMENTED."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        """The state of every version of a model, or of one; newest first."""
        with errors.as_status(context):
            name, version = specs.read_name_and_version(request)
            return _encode(self._dataplane.status(name, version))


def _encode(versions: list[VersionStatus]) -> Any:
    response = get_model_status_pb2.GetModelStatusResponse()
    for each in versions:
        status = response.model_version_status.add(version=each.version, state=each.state.value)
        if each.error is not None:
            status.status.error_code = each.error.code.value
            status.status.error_message = str(each.error)
        else:
            status.status.SetInParent()
    return response
