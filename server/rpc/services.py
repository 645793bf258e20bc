"""The services and their methods."""

from collections.abc import Mapping
from concurrent import futures

import grpc

from server.dataplane import DataPlane
from server.limits import Limits
from server.metrics import Metrics
from server.rpc import calls
from server.rpc.inference import Classify, MultiInference, Regress
from server.rpc.models import GetModelMetadata, GetModelStatus
from server.rpc.predict import Predict
from server.rpc.reload import HandleReloadConfigRequest
from server.rpc.tensors import MAX_BYTES
from server.rpc.threads import Threads
from tpuserve.errors import TooManyRequests, Unavailable

PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"


class PredictionService(grpc.GenericRpcHandler):
    """Answers from a data plane, within limits.

    A call counts from its arrival on, so that those that wait for a thread, or for the rest of
    their message, are bounded too.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        threads: Threads,
        pool: futures.ThreadPoolExecutor,
        limits: Limits | None = None,
        *,
        as_content: bool = False,
        max_tensor_bytes: int = MAX_BYTES,
    ) -> None:
        """Takes the data plane to answer from.

        Args:
          threads: where calls are answered.
          pool: where they are refused.
          limits: of calls in flight; None for none.
          as_content, max_tensor_bytes: as of `Predict`.
        """
        answers: dict[str, calls.Answer] = {
            "Predict": Predict(dataplane, as_content=as_content, max_tensor_bytes=max_tensor_bytes),
            "Classify": Classify(dataplane),
            "Regress": Regress(dataplane),
            "MultiInference": MultiInference(dataplane),
            "GetModelMetadata": GetModelMetadata(dataplane),
        }
        done = (lambda: None) if limits is None else limits.leave
        self._handlers = _handlers(PREDICTION_SERVICE, answers, threads, done=done)
        self._limits = limits
        self._pool = pool

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """What answers a call of the service, or refuses it; None for a call of another one."""
        found = self._handlers.get(details.method)
        if found is None or self._limits is None:
            return found
        try:
            self._limits.enter()
        except (Unavailable, TooManyRequests) as error:
            return calls.refusal(error, self._pool)
        return found


class ModelService(grpc.GenericRpcHandler):
    """Answers from a data plane, in threads of their own: a reload takes as long as loading does.

    Neither limits nor draining concern it: it is how to see what is going on.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        threads: Threads,
        pool: futures.ThreadPoolExecutor,
        metrics: Metrics | None = None,
    ) -> None:
        """Takes the data plane to answer from.

        Args:
          threads: where messages are waited for in time.
          pool: where calls are answered.
          metrics: the counters that a reload may be asked for.
        """
        read = (lambda name: None) if metrics is None else metrics.first_value
        answers: dict[str, calls.Answer] = {
            "GetModelStatus": GetModelStatus(dataplane),
            "HandleReloadConfigRequest": HandleReloadConfigRequest(dataplane, read),
        }
        self._handlers = _handlers(MODEL_SERVICE, answers, threads, pool=pool)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """What answers a call of the service; None for a call of another one."""
        return self._handlers.get(details.method)


def _handlers(
    service: str,
    answers: Mapping[str, calls.Answer],
    threads: Threads,
    pool: futures.ThreadPoolExecutor | None = None,
    done: calls.Done = lambda: None,
) -> dict[str, grpc.RpcMethodHandler]:
    return {
        f"/{service}/{name}": calls.handler(answer, threads, done, pool)
        for name, answer in answers.items()
    }
