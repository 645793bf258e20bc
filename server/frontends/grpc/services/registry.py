"""The list of all gRPC services that the server can offer."""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import grpc
from tensorflow_serving.apis import model_management_pb2

from server.config import model_file
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.grpc import deadlines
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services import inference
from server.frontends.grpc.services.call_handler import UnaryMethod
from server.frontends.grpc.services.health import HealthService
from server.frontends.grpc.services.model_name import (
    read_model_name,
    read_model_name_of_tasks,
)
from server.frontends.grpc.services.model_service import GetModelMetadata, GetModelStatus
from server.frontends.grpc.services.open_inference_service import (
    OpenInferenceService,
    OpenInferenceStatusService,
)
from server.frontends.grpc.services.parsing import parse_message
from server.frontends.grpc.services.predict import Predict
from server.frontends.grpc.services.reflection import ReflectionService
from server.frontends.grpc.services.service import GrpcService, ServiceContext, UnaryService
from server.metrics import Metrics
from tpuserve.errors import TpuserveError, WrongContext


class HandleReloadConfigRequest:
    """The method HandleReloadConfigRequest: replaces the configuration of the served models.

    Args:
      metrics: the registry that counts the reloads, and has the counters that requests name in
        `metric_names`; None for no metrics.
    """

    def __init__(
        self, dataplane: DataPlane, metrics: Metrics | None, num_processes: int = 1
    ) -> None:
        self._num_processes = num_processes
        self._dataplane = dataplane
        self._metrics = Metrics() if metrics is None else metrics

    def __call__(self, raw: bytes | memoryview, call: CallContext) -> bytes:
        """Apply a configuration, and return a serialised ReloadConfigResponse.

        For each counter that the request names in `metric_names`, the response has the increase
        during the reload.
        """
        message = parse_message(model_management_pb2.ReloadConfigRequest, raw)
        if self._num_processes > 1:
            raise WrongContext(
                f"the request would change the models of one of {self._num_processes} processes. "
                f"Change --model_config_file, which all read again with "
                f"--model_config_file_poll_wait_seconds."
            )
        before = self._counter_values(message.metric_names)
        try:
            self._dataplane.reload(model_file.from_reload_request(message.config))
        except TpuserveError as error:
            self._metrics.reloaded(error.code.name)
            raise
        self._metrics.reloaded("OK")
        after = self._counter_values(message.metric_names)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.SetInParent()
        for name, old, new in zip(message.metric_names, before, after, strict=True):
            response.metric.add(name=name, int64_value_increase=new - old)
        return bytes(response.SerializeToString())

    def _counter_values(self, names: Iterable[str]) -> list[int]:
        return [self._metrics.first_value(name) or 0 for name in names]


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
            "GetModelMetadata": UnaryMethod(
                GetModelMetadata(dataplane), reads_metadata_of=read_model_name
            ),
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
        reload = HandleReloadConfigRequest(
            context.dataplane, context.metrics, context.settings.processes
        )
        return {
            "GetModelStatus": UnaryMethod(GetModelStatus(context.dataplane), is_quick=True),
            "HandleReloadConfigRequest": UnaryMethod(reload, pool=context.admin_pool),
        }


_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# The duration, in seconds, of each event that the server itself records while a profile is taken.
# With these events, the profile of an idle server is not empty.
_EVENT_SECONDS = 0.1
logger = logging.getLogger(__name__)


class ProfilerService(GrpcService, grpc.GenericRpcHandler):
    """Forwards every call to TensorFlow's profiler server, which the first call starts.

    The calls run in `ServiceContext.admin_pool`, because recording a profile lasts as long as the
    client asks for.
    """

    names = ("tensorflow.ProfilerService",)

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._address = ""
        self._channel: grpc.Channel | None = None
        self._lock = threading.Lock()

    @classmethod
    def is_enabled(cls, settings: Settings) -> bool:
        """Return whether the settings enable the profiler."""
        return settings.enable_profiler

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Return the service itself, which is the handler of its methods."""
        return [self]

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler that forwards a call; None for a method of another service."""
        method: str = details.method
        if not method.startswith(f"/{self.names[0]}/"):
            return None
        executor = self._context.executor

        def forward(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            message = executor.receive_first(messages, context)
            return self._forward(method, message or b"", context)

        executor.register(forward, pool=self._context.admin_pool)
        return grpc.stream_unary_rpc_method_handler(forward)

    def close(self) -> None:
        """Close the channel to TensorFlow's profiler server."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _forward(self, method: str, message: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            stub = self._connect().unary_unary(method)
        except Exception:
            logger.exception("TensorFlow's profiler server cannot be started")
            context.abort(
                grpc.StatusCode.UNAVAILABLE, "the profiler cannot be started, see the server's log"
            )
        timeout = deadlines.remaining_seconds(context)
        call = stub.future(message, timeout=timeout, wait_for_ready=True)
        # When the client cancels its call, cancel the forwarded call as well, which ends the
        # recording.
        context.add_callback(call.cancel)
        self._trace_until_done(call)
        try:
            return bytes(call.result())
        except grpc.RpcError:
            context.abort(call.code(), call.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "the call was cancelled")
        raise AssertionError("abort never returns")

    def _trace_until_done(self, call: grpc.Future) -> None:
        """Wait until a forwarded call is done, and record profiler events meanwhile."""
        is_done = threading.Event()
        call.add_done_callback(lambda _: is_done.set())
        admission = self._context.admission
        while not is_done.is_set():
            in_flight = 0 if admission is None else admission.in_flight
            self._context.dataplane.record_profiler_event(_EVENT_SECONDS, in_flight)

    def _connect(self) -> grpc.Channel:
        """Return the channel to TensorFlow's profiler server; start the server if needed."""
        address = self._context.dataplane.start_profiler()
        with self._lock:
            # Create a new channel if the address has changed. It changes when the process that runs
            # the models is restarted.
            if self._channel is None or address != self._address:
                self._address = address
                self._channel = grpc.insecure_channel(address, _NO_LIMIT)
            return self._channel


SERVICE_TYPES: tuple[type[GrpcService], ...] = (
    PredictionService,
    ModelService,
    OpenInferenceService,
    OpenInferenceStatusService,
    ProfilerService,
    HealthService,
    ReflectionService,
)
"""The classes of all services, including the services that the settings can disable."""
