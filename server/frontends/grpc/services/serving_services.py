"""The services and their methods."""

from collections.abc import Mapping
from concurrent import futures
from typing import Any

import grpc

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.frontends.grpc.executor.call_executor import CallExecutor
from server.frontends.grpc.observability import MODEL_SERVICE, PREDICTION_SERVICE, CallObserver
from server.frontends.grpc.services import call_handler, inference
from server.frontends.grpc.services.call_context import Answer
from server.frontends.grpc.services.model_service import GetModelMetadata, GetModelStatus
from server.frontends.grpc.services.predict import Predict
from server.frontends.grpc.services.reload import HandleReloadConfigRequest
from server.metrics import Metrics
from server.tensors.tensor_proto import MAX_BYTES
from tpuserve.errors import TooManyRequests, Unavailable

__all__ = ["MODEL_SERVICE", "PREDICTION_SERVICE", "ModelService", "PredictionService"]


class PredictionService(grpc.GenericRpcHandler):
    """Answers from a data plane, within limits.

    A call counts from its arrival on, so that those that wait for a thread, or for the rest of
    their message, are bounded too.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        threads: CallExecutor,
        pool: futures.ThreadPoolExecutor,
        observer: CallObserver,
        admission: AdmissionController | None = None,
        *,
        as_content: bool = False,
        max_tensor_bytes: int = MAX_BYTES,
    ) -> None:
        """Takes the data plane to answer from.

        Args:
          threads: where calls are answered.
          pool: where they are refused.
          books: where both are noted down.
          limits: of calls in flight; None for none.
          as_content, max_tensor_bytes: as of `Predict`.
        """
        answers: dict[str, Answer] = {
            "Predict": Predict(dataplane, as_content=as_content, max_tensor_bytes=max_tensor_bytes),
            "Classify": inference.classify(dataplane),
            "Regress": inference.regress(dataplane),
            "MultiInference": inference.multi_inference(dataplane),
            "GetModelMetadata": GetModelMetadata(dataplane),
        }
        done = (lambda: None) if admission is None else admission.release
        self._handlers = {
            method: call_handler.handler(method, answer, threads, observer, done)
            for method, answer in _full_names(PREDICTION_SERVICE, answers).items()
        }
        self._admission = admission
        self._pool = pool
        self._observer = observer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """What answers a call of the service, or refuses it; None for a call of another one."""
        method: str = details.method
        found = self._handlers.get(method)
        if found is None or self._admission is None:
            return found
        try:
            self._admission.acquire()
        except (Unavailable, TooManyRequests) as error:
            return call_handler.refusal(method, error, self._observer, self._pool)
        return found


class ModelService(grpc.GenericRpcHandler):
    """Answers from a data plane, whatever limits there are, and while others wait for a thread.

    Neither limits nor draining concern it: it is how to see what is going on.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        threads: CallExecutor,
        pool: futures.ThreadPoolExecutor,
        observer: CallObserver,
        metrics: Metrics | None = None,
    ) -> None:
        """Takes the data plane to answer from.

        Args:
          threads: where messages are waited for in time.
          pool: where a configuration is reloaded, which takes as long as loading does.
          books: where calls are noted down.
          metrics: the counters that a reload may be asked for.
        """
        read = (lambda name: None) if metrics is None else metrics.first_value
        answers: dict[str, tuple[Answer, dict[str, Any]]] = {
            "GetModelStatus": (GetModelStatus(dataplane), {"is_quick": True}),
            "HandleReloadConfigRequest": (
                HandleReloadConfigRequest(dataplane, read),
                {"pool": pool},
            ),
        }
        self._handlers = {
            method: call_handler.handler(method, answer, threads, observer, **register)
            for method, (answer, register) in _full_names(MODEL_SERVICE, answers).items()
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """What answers a call of the service; None for a call of another one."""
        return self._handlers.get(details.method)


def _full_names(service: str, methods: Mapping[str, Any]) -> dict[str, Any]:
    return {f"/{service}/{name}": each for name, each in methods.items()}
