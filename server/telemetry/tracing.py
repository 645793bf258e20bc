"""Creates OpenTelemetry spans of requests that have ended, and exports the spans.

The attributes of the spans follow OpenTelemetry's conventions for HTTP and RPC servers. Source:
https://opentelemetry.io/docs/specs/semconv/http/http-spans,
https://opentelemetry.io/docs/specs/semconv/rpc/grpc.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import urlsplit

import grpc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.exporter import logger as exporter_logger
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.attributes import (
    client_attributes,
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
    user_agent_attributes,
)
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.metrics.collectors import Labels
from server.metrics.timeline import Timeline
from server.process import ports
from server.process.logs import TraceIds
from server.telemetry.receiver import OtlpReceiver
from server.telemetry.redaction import redact_query

_PACKAGE = "tpuserve"
# The names of span attributes for RPCs. OpenTelemetry's package has no public constants for them.
_RPC_SYSTEM, _RPC_METHOD, _RPC_STATUS = "rpc.system.name", "rpc.method", "rpc.response.status_code"
# The gRPC status codes with which the status of a span is an error: they mean that the server and
# not the client is at fault.
_SERVER_ERRORS = {
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
}
_STANDARD_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}
# The headers that spans need: those of W3C Trace Context, which name the parent of the request's
# span, and two that become attributes. HTTP has bytes, gRPC has str.
_HEADERS = {
    name: text
    for text in ("traceparent", "tracestate", "host", "user-agent")
    for name in (text, text.encode())
}
# Texts that a client chooses, such as the path, are cut to this number of characters, so that no
# span fills the memory or lets a collector refuse a whole batch.
_MAX_TEXT = 1024
_MAX_PORT = 65535
_DEFAULT_PORT = 4317
# The spans of further requests are dropped, so that they do not fill the memory if the collector is
# slow or absent. A request has six spans at most.
_MAX_WAITING, _MAX_SPANS = 4096, 6
_BATCH_SIZE, _BATCH_MS = 1280, 1000
# How many seconds the sending of a batch may take, and the last batches of a server that stops.
_EXPORT_SECONDS, _CLOSE_SECONDS = 10.0, 5.0
# The shortest time between two log lines about spans that were not sent, in seconds.
_LOG_SECONDS = 60.0
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
# The field `flags` of a sampled span: whether its parent is in another process.
_LOCAL_PARENT, _REMOTE_PARENT = 0x101, 0x301

logger = logging.getLogger(__name__)


class _Description:
    """What spans with different times and IDs have in common."""

    def __init__(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        kind: SpanKind = SpanKind.INTERNAL,
        is_error: bool = False,
    ) -> None:
        self.name, self.attributes, self.kind = name, attributes, kind
        self.status = Status(StatusCode.ERROR if is_error else StatusCode.UNSET)
        self.message = trace_pb2.Span(
            name=name,
            kind=trace_pb2.Span.SPAN_KIND_SERVER
            if kind is SpanKind.SERVER
            else trace_pb2.Span.SPAN_KIND_INTERNAL,
            attributes=[
                KeyValue(
                    key=key,
                    value=AnyValue(int_value=value)
                    if isinstance(value, int)
                    else AnyValue(string_value=value),
                )
                for key, value in attributes.items()
            ],
            status=trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR) if is_error else None,
        )


_STAGES = {name: _Description(name, {}) for name in ("queue", "decode", "run", "encode")}


class _Scope(NamedTuple):
    """The resource and the scope that all spans have."""

    resource: Resource
    scope: InstrumentationScope


class _Place(NamedTuple):
    """The place of a request in its trace, with what spans need of its headers.

    Attributes:
      own: the context of the request's span; None if the request is not sampled.
      parent: the context of the client's span; None if the client has sent none.
    """

    own: SpanContext | None
    parent: SpanContext | None
    host: str
    agent: str


class _Span(ReadableSpan):
    """A span that has ended."""

    def __init__(
        self,
        description: _Description,
        scope: _Scope,
        context: SpanContext,
        parent: SpanContext | None,
        start_ns: int,
        end_ns: int,
    ) -> None:
        super().__init__(
            description.name,
            context,
            parent,
            scope.resource,
            description.attributes,
            kind=description.kind,
            status=description.status,
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=scope.scope,
        )
        self._description = description

    def write(self, message: trace_pb2.Span) -> None:
        message.CopyFrom(self._description.message)
        context, parent = self.context, self.parent
        message.trace_id = context.trace_id.to_bytes(16, "big")
        message.span_id = context.span_id.to_bytes(8, "big")
        message.flags = _LOCAL_PARENT
        if parent is not None:
            message.parent_span_id = parent.span_id.to_bytes(8, "big")
            message.flags = _REMOTE_PARENT if parent.is_remote else _LOCAL_PARENT
        if context.trace_state:
            message.trace_state = context.trace_state.to_header()
        message.start_time_unix_nano = self.start_time or 0
        message.end_time_unix_nano = self.end_time or 0


class _Exporter(OTLPSpanExporter):
    """Sends spans, and logs how many requests have spans that were not sent."""

    def __init__(self, receiver: OtlpReceiver, scope: _Scope) -> None:
        url = urlsplit(receiver.endpoint)
        address = ports.format_address(url.hostname or "", url.port or _DEFAULT_PORT)
        is_secure = url.scheme == "https"
        super().__init__(
            f"{url.scheme}://{address}",
            insecure=not is_secure,
            credentials=grpc.ssl_channel_credentials(
                receiver.authorities, receiver.key, receiver.certificate
            )
            if is_secure
            else None,
            headers=receiver.headers,
            timeout=_EXPORT_SECONDS,
            compression=grpc.Compression.NoCompression,
        )
        self.num_sent = 0
        self._url = receiver.endpoint
        self._template = ExportTraceServiceRequest()
        resource_spans = self._template.resource_spans.add()
        resource_spans.resource.attributes.extend(
            KeyValue(key=key, value=AnyValue(string_value=str(value)))
            for key, value in scope.resource.attributes.items()
        )
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name, scope_spans.scope.version = _PACKAGE, version(_PACKAGE)
        self._num_dropped = 0
        self._reason = self._drop_reason = ""
        self._last_log: float | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        count = sum(span.kind is SpanKind.SERVER for span in spans)
        self.num_sent += count
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.drop(count, self._reason)
        now = time.monotonic()
        if self._num_dropped and (self._last_log is None or now - self._last_log >= _LOG_SECONDS):
            logger.warning(
                "the spans of %d requests were not exported to %s: %s",
                self._num_dropped,
                self._url,
                self._drop_reason,
            )
            self._last_log, self._num_dropped = now, 0
        return result

    def drop(self, count: int, reason: str) -> None:
        self._num_dropped += count
        self._drop_reason = reason

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        # OpenTelemetry's own encoding takes ten times as long. If a later version has no method of
        # this name, that encoding is used.
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._template)
        messages = request.resource_spans[0].scope_spans[0].spans
        for span in data:
            if isinstance(span, _Span):
                span.write(messages.add())
        return request

    def keep_reason(self, record: logging.LogRecord) -> bool:
        """Keep the error that OpenTelemetry would log for the line with the number."""
        if record.args:
            self._reason = record.getMessage()
        return False


class Tracing:
    """Records requests that have ended as spans, and exports the spans.

    A request has a span of kind SERVER. If it runs a model, it also has a child span for each stage
    of its processing: queue, decode, run and encode.
    """

    def __init__(self, receiver: OtlpReceiver) -> None:
        resource = Resource.create({SERVICE_VERSION: version(_PACKAGE)})
        # Name the service "tpuserve" if the environment does not name it: OpenTelemetry's default
        # name begins with "unknown_service".
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: _PACKAGE}))
        self._scope = _Scope(resource, InstrumentationScope(_PACKAGE, version(_PACKAGE)))
        # The provider has the sampler that the environment variables choose.
        provider = TracerProvider(shutdown_on_exit=False)
        self._sampler, self._ids = provider.sampler, provider.id_generator
        self._propagator = TraceContextTextMapPropagator()
        self._describe = lru_cache(maxsize=4096)(_describe)
        self._exporter = _Exporter(receiver, self._scope)
        exporter_logger.addFilter(self._exporter.keep_reason)
        self._num_recorded = 0
        self._processor = BatchSpanProcessor(
            self._exporter, _MAX_WAITING * _MAX_SPANS, _BATCH_MS, _BATCH_SIZE
        )

    def record_http(
        self,
        timeline: Timeline,
        *,
        method: str,
        route: str,
        path: str,
        scheme: str,
        status: int,
        headers: Iterable[tuple[bytes, bytes]],
        peer: str,
        runs_model: bool,
    ) -> None:
        """Record a request over HTTP.

        Args:
          timeline: the times at which the stages of the request began and ended. Its method `end`
            must have been called.
          route: the template of the path, such as "/v1/models/{model}:predict"; empty for a path
            that no API has.
          peer: the address of the client; empty if it is unknown.
        """
        details = (method[:_MAX_TEXT], route, path[:_MAX_TEXT], scheme, status, peer)
        self._record(timeline, runs_model, _describe_http, details, headers)

    def record_rpc(
        self,
        timeline: Timeline,
        *,
        method: str,
        status: str,
        metadata: Iterable[tuple[str, str | bytes]],
        peer: str,
        runs_model: bool,
    ) -> None:
        """Record a call over gRPC.

        Args:
          timeline: the times at which the stages of the call began and ended. Its method `end` must
            have been called.
          method: the full name of the method, such as
            "/tensorflow.serving.PredictionService/Predict".
          status: the name of the gRPC status code, such as "OK".
          peer: the address of the client; empty if it is unknown.
        """
        details = (method[:_MAX_TEXT], status, peer)
        self._record(timeline, runs_model, _describe_rpc, details, metadata)

    def find_ids(
        self,
        timeline: Timeline,
        headers: Iterable[tuple[str | bytes, str | bytes]],
    ) -> TraceIds:
        """Return the IDs of the trace and of the span that a request has, or will have."""
        own = self._find_place(timeline, headers).own
        return None if own is None else (f"{own.trace_id:032x}", f"{own.span_id:016x}")

    def close(self) -> None:
        """Export the spans that are not exported yet, and end the thread."""
        timer = threading.Timer(_CLOSE_SECONDS, self._exporter.shutdown)
        timer.start()
        self._processor.shutdown()
        timer.cancel()
        exporter_logger.removeFilter(self._exporter.keep_reason)

    def _record(
        self,
        timeline: Timeline,
        runs_model: bool,
        describe: Callable[..., tuple[str, dict[str, str | int], bool]],
        details: tuple[str | int, ...],
        headers: Iterable[tuple[str | bytes, str | bytes]],
    ) -> None:
        own, parent, host, agent = self._find_place(timeline, headers)
        if own is None:
            return
        if self._num_recorded - self._exporter.num_sent >= _MAX_WAITING:
            self._exporter.drop(1, "the collector does not keep up")
            return
        self._num_recorded += 1
        # Timelines use the clock `time.perf_counter_ns`, but spans need nanoseconds since 1970.
        offset_ns = time.time_ns() - time.perf_counter_ns()
        labels = tuple(label[:_MAX_TEXT] for label in timeline.labels) if runs_model else ()
        self._add(
            self._describe(describe, details, host, agent, labels),
            own,
            parent,
            timeline.started_ns + offset_ns,
            timeline.ended_ns + offset_ns,
        )
        if runs_model:
            for stage in timeline.stages():
                context_of_stage = SpanContext(
                    own.trace_id, self._ids.generate_span_id(), False, _SAMPLED
                )
                self._add(
                    _STAGES[stage.name],
                    context_of_stage,
                    own,
                    stage.start_ns + offset_ns,
                    stage.end_ns + offset_ns,
                )

    def _find_place(
        self, timeline: Timeline, headers: Iterable[tuple[str | bytes, str | bytes]]
    ) -> _Place:
        if isinstance(timeline.place, _Place):
            return timeline.place
        carrier = _read_headers(headers)
        host, agent = carrier.pop("host", ""), carrier.pop("user-agent", "")
        context = self._propagator.extract(carrier) if carrier else None
        parent = None if context is None else trace.get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            context = parent = None
        trace_id = self._ids.generate_trace_id() if parent is None else parent.trace_id
        own: SpanContext | None = None
        if self._sampler.should_sample(
            context, trace_id, "", SpanKind.SERVER
        ).decision.is_sampled():
            own = SpanContext(
                trace_id,
                self._ids.generate_span_id(),
                False,
                _SAMPLED,
                None if parent is None else parent.trace_state,
            )
        place = timeline.place = _Place(own, parent, host, agent)
        return place

    def _add(
        self,
        description: _Description,
        context: SpanContext,
        parent: SpanContext | None,
        start_ns: int,
        end_ns: int,
    ) -> None:
        self._processor.on_end(_Span(description, self._scope, context, parent, start_ns, end_ns))


def _describe(
    describe: Callable[..., tuple[str, dict[str, str | int], bool]],
    details: tuple[str | int, ...],
    host: str,
    agent: str,
    labels: Labels,
) -> _Description:
    name, attributes, is_error = describe(*details, host, agent)
    names = ("tpuserve.model", "tpuserve.version", "tpuserve.signature", "tpuserve.metagraph")
    model = {key: value for key, value in zip(names, labels, strict=False) if value}
    return _Description(name, {**attributes, **model}, SpanKind.SERVER, is_error)


def _describe_http(
    method: str,
    route: str,
    path: str,
    scheme: str,
    status: int,
    peer: str,
    host: str,
    agent: str,
) -> tuple[str, dict[str, str | int], bool]:
    known_method = method if method in _STANDARD_METHODS else "_OTHER"
    url_path, _, query = path.partition("?")
    server, port = _split_host(host)
    attributes: dict[str, str | int] = {
        http_attributes.HTTP_REQUEST_METHOD: known_method,
        http_attributes.HTTP_RESPONSE_STATUS_CODE: status,
        url_attributes.URL_PATH: url_path,
        url_attributes.URL_SCHEME: scheme,
    }
    optional: dict[str, str | int] = {
        http_attributes.HTTP_ROUTE: route,
        url_attributes.URL_QUERY: redact_query(query),
        client_attributes.CLIENT_ADDRESS: peer,
        server_attributes.SERVER_ADDRESS: server,
        server_attributes.SERVER_PORT: port,
        user_agent_attributes.USER_AGENT_ORIGINAL: agent,
        error_attributes.ERROR_TYPE: str(status) if status >= 500 else "",
    }
    attributes |= {name: value for name, value in optional.items() if value}
    name = "HTTP" if known_method == "_OTHER" else known_method
    return f"{name} {route}".strip(), attributes, status >= 500


def _split_host(host: str) -> tuple[str, int]:
    server, _, text = host.rpartition(":")
    is_port = text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _MAX_PORT
    return (server, int(text)) if is_port else (host, 0)


def _describe_rpc(
    method: str, status: str, peer: str, host: str, agent: str
) -> tuple[str, dict[str, str | int], bool]:
    name = method.removeprefix("/")
    attributes: dict[str, str | int] = {_RPC_SYSTEM: "grpc", _RPC_METHOD: name, _RPC_STATUS: status}
    if peer:
        attributes[network_attributes.NETWORK_PEER_ADDRESS] = peer
    if status != "OK":
        attributes[error_attributes.ERROR_TYPE] = status
    return name, attributes, status in _SERVER_ERRORS


def _read_headers(headers: Iterable[tuple[str | bytes, str | bytes]]) -> dict[str, str]:
    """Return the headers that spans need, but for values of more than `_MAX_TEXT` characters."""
    return {
        _HEADERS[name]: value if isinstance(value, str) else value.decode("latin-1")
        for name, value in headers
        if name in _HEADERS and len(value) <= _MAX_TEXT
    }
