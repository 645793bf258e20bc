"""Records finished calls in the metrics and in the access log."""

import time
from collections.abc import Mapping

import grpc

from server.frontends.grpc import peers
from server.frontends.grpc.call_context import CallContext
from server.metrics import Metrics
from server.request_log.access_log import AccessLog

_PROTOCOL = "gRPC"
_ENTRYPOINT = "GRPC"


class CallObserver:
    """Records each finished call, successful or not, in the metrics and in the access log.

    A call that fails before its request is parsed is counted with an empty model name.
    """

    def __init__(
        self,
        counted_methods: Mapping[str, str],
        metrics: Metrics | None = None,
        access_log: AccessLog | None = None,
    ) -> None:
        """Create an observer.

        Args:
          counted_methods: maps the full name of each method whose calls are counted to the value of
            the label "API" under which they are counted.
          metrics: the registry in which calls are counted; None to count in a registry that nothing
            reads.
          access_log: the log to write to; None to write no access log.
        """
        self._counted_methods = counted_methods
        self._metrics = Metrics() if metrics is None else metrics
        self._access_log = access_log

    def record(
        self,
        method: str,
        call: CallContext,
        status: str,
        started_ns: int,
        context: grpc.ServicerContext,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        """Record a call that has just ended.

        Args:
          method: the full name of the method, such as
            "/tensorflow.serving.PredictionService/Predict".
          call: the model, version and time limit of the call.
          status: the name of the gRPC status code with which the call ended, such as "OK".
          started_ns: the time at which the call began, from `time.perf_counter_ns`.
          context: grpcio's context of the call, which knows the address of the client.
          bytes_in: the size of the request message.
          bytes_out: the size of the response message.
        """
        duration_ns = time.perf_counter_ns() - started_ns
        api = self._counted_methods.get(method)
        model_spec = call.model_spec
        if api is not None:
            self._metrics.request_done(
                model_spec.model, api, _ENTRYPOINT, status, duration_ns // 1000
            )
        if self._access_log is not None:
            self._access_log.write(
                _PROTOCOL,
                method,
                model=model_spec.model,
                version=model_spec.version if call.version is None else call.version,
                signature=model_spec.signature_name,
                status=status,
                duration_ms=duration_ns / 1e6,
                peer=peers.split_peer(context.peer())[0],
                bytes_in=bytes_in,
                bytes_out=bytes_out,
            )
