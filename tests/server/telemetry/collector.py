"""A collector that receives spans over OTLP, as OpenTelemetry's own collector does."""

import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from tests import processes


@dataclass(frozen=True)
class Span:
    """A span as the collector received it, and the attributes of its resource."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it receives, and the metadata of the last call.

    Attributes:
      endpoint: the URL at which the collector receives spans.
      spans: the received spans.
      metadata: the metadata of the last call: key → value.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        """Start the collector, with TLS if there are credentials."""
        self.spans: list[Span] = []
        self.metadata: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        address = f"{processes.LOOPBACK}:0"
        if credentials is None:
            scheme, port = "http", self._server.add_insecure_port(address)
        else:
            scheme, port = "https", self._server.add_secure_port(address, credentials)
        self.endpoint = f"{scheme}://{processes.LOOPBACK}:{port}"
        self._server.start()

    def Export(self, request: Any, context: Any) -> Any:
        with self._lock:
            self.metadata = dict(context.invocation_metadata())
            for resource_spans in request.resource_spans:
                resource = _values(resource_spans.resource.attributes)
                for scope_spans in resource_spans.scope_spans:
                    assert scope_spans.scope.name == "tpuserve"
                    self.spans += [_span(span, resource) for span in scope_spans.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def children(self, parent: Span) -> list[Span]:
        """Return the child spans of a span, in the order of their starts."""
        return sorted(
            (span for span in self.spans if span.parent_id == parent.span_id),
            key=lambda span: span.start_ns,
        )

    def stop(self) -> None:
        self._server.stop(None).wait()


def _span(span: Any, resource: Mapping[str, Any]) -> Span:
    return Span(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.trace_state,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == span.status.STATUS_CODE_ERROR,
        _values(span.attributes),
        resource,
    )


def _values(attributes: Sequence[Any]) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in attributes
    }
