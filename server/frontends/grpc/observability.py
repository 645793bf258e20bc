"""Records finished gRPC calls in the metrics, in the traces and in the access log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import grpc

from server.frontends.grpc import peers
from server.frontends.grpc.call_context import CallContext
from server.metrics import Metrics
from server.process.logs import TRACE
from server.request_log.access_log import AccessLog

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing

_PROTOCOL = "gRPC"
_ENTRYPOINT = "GRPC"


class CallObserver:
    """Records each finished gRPC call, successful or not, in metrics, traces and the access log.

    A call that fails before its request is parsed is counted with an empty model name.

    Args:
      counted_methods: full name of a method → value of the metrics' label "API", for each
        method whose calls are counted.
      metrics: the registry in which calls are counted; None to count in a registry that nothing
        reads.
    """

    def __init__(
        self,
        counted_methods: Mapping[str, str],
        metrics: Metrics | None = None,
        access_log: AccessLog | None = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._counted_methods = counted_methods
        self._metrics = Metrics() if metrics is None else metrics
        self._access_log = access_log
        self._tracing = tracing

    def enter(self, call: CallContext, context: grpc.ServicerContext) -> None:
        """Let the lines that the present context logs have the IDs of a call's trace."""
        tracing = self._tracing
        if tracing is not None:
            TRACE.set(lambda: tracing.find_ids(call.timeline, context.invocation_metadata() or ()))

    def record(
        self,
        method: str,
        call: CallContext,
        status: str,
        context: grpc.ServicerContext,
        runs_model: bool = False,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        """Record a call that has just ended.

        Args:
          method: the full name of the method, such as
            "/tensorflow.serving.PredictionService/Predict".
          status: the name of the gRPC status code with which the call ended, such as "OK".
          bytes_in: the size of the request message in bytes.
          bytes_out: the size of the response message in bytes.
        """
        timeline, model_spec = call.timeline, call.model_spec
        timeline.end()
        timeline.model = timeline.model or model_spec.model
        api = self._counted_methods.get(method)
        if api is not None:
            self._metrics.request_done(
                model_spec.model, api, _ENTRYPOINT, status, timeline.total_seconds * 1e6
            )
            if call.error:
                self._metrics.request_failed(model_spec.model, _ENTRYPOINT, status, call.error)
        if runs_model:
            self._metrics.request_ended(timeline, status)
        if self._tracing is not None:
            self._tracing.record_rpc(
                timeline,
                method=method,
                status=status,
                metadata=context.invocation_metadata() or (),
                peer=peers.split_peer(context.peer())[0],
                runs_model=runs_model,
            )
        if self._access_log is not None:
            self._access_log.write(
                _PROTOCOL,
                method,
                model=model_spec.model,
                version=model_spec.version if call.version is None else call.version,
                signature=model_spec.signature_name,
                status=status,
                duration_ms=timeline.total_seconds * 1000,
                peer=peers.split_peer(context.peer())[0],
                bytes_in=bytes_in,
                bytes_out=bytes_out,
                trace=None
                if self._tracing is None
                else self._tracing.find_ids(timeline, context.invocation_metadata() or ()),
            )
