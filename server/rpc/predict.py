"""PredictionService: Predict."""

from typing import Any

import grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from server.dataplane import DataPlane
from server.rpc import errors, specs, tensors
from server.servable import Array
from tpuserve.signature import Signature


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers from a data plane; what it does not offer is UNIMPLEMENTED."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:
        """The outputs of a model for the inputs in the request."""
        with errors.as_status(context):
            return self._predict(request)

    def _predict(self, request: Any) -> Any:
        def read_inputs(_: Signature) -> dict[str, Array]:
            return {alias: tensors.decode(proto, alias) for alias, proto in request.inputs.items()}

        target = specs.read_target(request)
        prediction = self._dataplane.predict(target, read_inputs, list(request.output_filter))
        response = predict_pb2.PredictResponse()
        response.model_spec.name = prediction.model
        response.model_spec.version.value = prediction.version
        response.model_spec.signature_name = prediction.signature_name
        for alias, array in prediction.outputs.items():
            response.outputs[alias].CopyFrom(tensors.encode(array))
        return response
