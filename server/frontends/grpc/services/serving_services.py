"""TensorFlow Serving's services: PredictionService and ModelService.

Source: tensorflow_serving/apis/prediction_service.proto, model_service.proto.
"""

from collections.abc import Mapping

from server.frontends.grpc.services import inference
from server.frontends.grpc.services.call_handler import UnaryMethod
from server.frontends.grpc.services.model_name import (
    read_model_name,
    read_model_name_of_tasks,
)
from server.frontends.grpc.services.model_service import GetModelMetadata, GetModelStatus
from server.frontends.grpc.services.predict import Predict
from server.frontends.grpc.services.reload import HandleReloadConfigRequest
from server.frontends.grpc.services.service import UnaryService


class PredictionService(UnaryService):
    """Runs models, and returns the signatures of models with the method GetModelMetadata.

    The admission controller limits the calls of this service.
    """

    names = ("tensorflow.serving.PredictionService",)
    # Health checks name the service without its package, as in TensorFlow Serving.
    health_names = ("PredictionService",)
    # Metrics count only the calls of Predict, Classify and Regress, as in TensorFlow Serving.
    counted_apis = ("Predict", "Classify", "Regress")
    descriptor_module = "tensorflow_serving.apis.prediction_service_pb2"
    is_admission_controlled = True

    def methods(self) -> Mapping[str, UnaryMethod]:
        """Return the methods of the service by their names, such as "Predict"."""
        dataplane, settings = self._context.dataplane, self._context.settings
        predict = Predict(
            dataplane,
            as_content=settings.enable_serialization_as_tensor_content,
            max_tensor_bytes=settings.max_request_bytes,
        )
        return {
            "Predict": UnaryMethod(predict, read_model_name=read_model_name),
            "Classify": UnaryMethod(
                inference.classify_function(dataplane), read_model_name=read_model_name
            ),
            "Regress": UnaryMethod(
                inference.regress_function(dataplane), read_model_name=read_model_name
            ),
            "MultiInference": UnaryMethod(
                inference.multi_inference_function(dataplane),
                read_model_name=read_model_name_of_tasks,
            ),
            "GetModelMetadata": UnaryMethod(GetModelMetadata(dataplane)),
        }


class ModelService(UnaryService):
    """Reports the status of models and reloads the configuration.

    The admission controller does not limit these calls, so that an operator can always see the
    status. A reload runs in `ServiceContext.admin_pool`, because loading models takes long.
    """

    names = ("tensorflow.serving.ModelService",)
    health_names = ("ModelService",)
    descriptor_module = "tensorflow_serving.apis.model_service_pb2"

    def methods(self) -> Mapping[str, UnaryMethod]:
        """Return the methods of the service by their names, such as "GetModelStatus"."""
        context = self._context
        reload = HandleReloadConfigRequest(context.dataplane, context.metrics)
        return {
            "GetModelStatus": UnaryMethod(GetModelStatus(context.dataplane), is_quick=True),
            "HandleReloadConfigRequest": UnaryMethod(reload, pool=context.admin_pool),
        }
