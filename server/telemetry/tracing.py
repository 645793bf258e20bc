"""Creates OpenTelemetry spans of requests that have ended, and exports the spans.

The attributes of the spans follow OpenTelemetry's conventions for HTTP and RPC servers. Source:
https://opentelemetry.io/docs/specs/semconv/http/http-spans,
https://opentelemetry.io/docs/specs/semconv/rpc/grpc.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_ON
from opentelemetry.semconv.attributes import (
    client_attributes,
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
    user_agent_attributes,
)
from opentelemetry.trace import SpanContext, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.metrics.family import Labels
from server.metrics.timeline import Timeline
from server.telemetry import span_bytes
from server.telemetry.exporter import SpanExporter
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
# The headers of W3C Trace Context, with which a client names the span that becomes the parent of
# the request's span.
_TRACE_HEADERS = {"traceparent", "tracestate"}
_READ_HEADERS = {*_TRACE_HEADERS, "host", "user-agent"}
# The names of the headers that spans need, as bytes for HTTP and as str for gRPC.
_RAW_HEADERS = frozenset({*_READ_HEADERS, *(name.encode() for name in _READ_HEADERS)})
# Texts that a client chooses, such as the path, are cut to this number of characters. Otherwise
# thousands of queued requests could fill the memory, and a collector would refuse a whole batch of
# spans because of one large span.
_MAX_TEXT = 1024
_MAX_PORT = 65535
# The number of random bytes for the IDs of one request: 16 for the ID of the trace, 8 for the ID of
# the request's span, and 8 for the span of each of at most five stages.
_ID_BYTES = 64
# How many seconds a stopping server waits until the last spans are exported.
_CLOSE_SECONDS = 5.0

_STAGES = {
    name: span_bytes.describe_span(name, span_bytes.INTERNAL, has_parent=True)
    for name in ("queue", "decode", "run", "encode")
}


class _Description(NamedTuple):
    """The fields of the span of a request that do not depend on its times and IDs.

    Attributes:
      name: the name of the span.
      attributes: the attributes of the span.
      is_error: whether the request has failed because of the server, and not because of the client.
    """

    name: str
    attributes: Mapping[str, str | int]
    is_error: bool


class _RequestRecord(NamedTuple):
    """A request that has ended, with all that is needed to create its spans later.

    Attributes:
      timeline: the times at which the stages of the request began and ended, and the names of its
        model, version and signature.
      runs_model: whether the request runs a model, so that each of its stages has a span.
      describe: returns the description of the span. Its arguments are the elements of `details`,
        followed by the host and the user agent of the request.
      details: fields of the request, such as the HTTP method and the status.
      headers: those headers or metadata of the request that its spans need, such as "traceparent".
    """

    timeline: Timeline
    runs_model: bool
    describe: Callable[..., _Description]
    details: tuple[str | int, ...]
    headers: Sequence[tuple[str | bytes, str | bytes]]


class Tracing:
    """Records requests that have ended as spans, and exports the spans.

    A request has a span of kind SERVER. If it runs a model, it also has a child span for each stage
    of its processing: queue, decode, run and encode. The thread of a request only queues a record
    of the request. The thread of the exporter creates the spans later. Environment variables of
    OpenTelemetry, such as OTEL_TRACES_SAMPLER and OTEL_SERVICE_NAME, set the sampler and the
    resource.
    """

    def __init__(self, receiver: OtlpReceiver) -> None:
        """Start the thread that exports spans.

        Args:
          receiver: the OTLP receiver of the spans.
        """
        resource = Resource.create({SERVICE_VERSION: version(_PACKAGE)})
        # Name the service "tpuserve" if the environment does not name it: OpenTelemetry's default
        # name begins with "unknown_service".
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: _PACKAGE}))
        attributes = {key: str(value) for key, value in resource.attributes.items()}
        self._encoder = span_bytes.RequestEncoder(attributes, _PACKAGE, version(_PACKAGE))
        # Create a TracerProvider only to get the sampler that the environment variables choose.
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        self._propagator = TraceContextTextMapPropagator()
        self._describe_bytes = lru_cache(maxsize=4096)(_describe_bytes)
        self._exporter = SpanExporter(receiver, self._encode)

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
          method: the HTTP method.
          route: the template of the path, such as "/v1/models/{model}:predict"; empty for a path
            that no API has.
          path: the path as sent, with the query string.
          scheme: "http" or "https".
          status: the HTTP status of the response.
          headers: the headers of the request, with names in lower case.
          peer: the address of the client; empty if it is unknown.
          runs_model: whether the request runs a model, so that its stages become spans.
        """
        details = (method[:_MAX_TEXT], route, path[:_MAX_TEXT], scheme, status, peer)
        self._exporter.add(
            _RequestRecord(timeline, runs_model, _describe_http, details, _select(headers))
        )

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
          metadata: the metadata of the call.
          peer: the address of the client; empty if it is unknown.
          runs_model: whether the method runs a model, so that its stages become spans.
        """
        details = (method[:_MAX_TEXT], status, peer)
        self._exporter.add(
            _RequestRecord(timeline, runs_model, _describe_rpc, details, _select(metadata))
        )

    def close(self) -> None:
        """Export the spans that are not exported yet, and end the thread."""
        self._exporter.close(_CLOSE_SECONDS)

    def _encode(self, requests: Sequence[_RequestRecord]) -> bytes:
        # Timelines use the clock `time.perf_counter_ns`, but spans need nanoseconds since 1970. The
        # difference is added to the times of each timeline.
        offset_ns = time.time_ns() - time.perf_counter_ns()
        # Get the random bytes of all requests with one system call, because a system call takes as
        # long as the serialisation of a span.
        ids = os.urandom(_ID_BYTES * len(requests))
        return self._encoder.encode(
            span
            for index, request in enumerate(requests)
            for span in self._spans(
                request, ids[_ID_BYTES * index : _ID_BYTES * (index + 1)], offset_ns
            )
        )

    def _spans(self, request: _RequestRecord, ids: bytes, offset_ns: int) -> Iterator[bytes]:
        timeline = request.timeline
        carrier, host, agent = _read_headers(request.headers)
        context = self._propagator.extract(carrier) if carrier else None
        parent = None if context is None else trace.get_current_span(context).get_span_context()
        if parent is None or not parent.is_valid:
            context = parent = None
        trace_id, own_id = ids[:16], ids[16:24]
        parent_id, state = b"", ""
        if parent is not None:
            trace_id = parent.trace_id.to_bytes(16, "big")
            parent_id, state = parent.span_id.to_bytes(8, "big"), parent.trace_state.to_header()
        if not self._is_sampled(trace_id, context, parent):
            return
        labels: Labels = ()
        if request.runs_model:
            labels = timeline.labels
            if max(map(len, labels)) > _MAX_TEXT:
                labels = tuple(label[:_MAX_TEXT] for label in labels)
        yield span_bytes.encode_span(
            self._describe_bytes(
                request.describe, request.details, host, agent, labels, bool(parent_id), state
            ),
            span_bytes.encode_trace(trace_id, parent_id),
            own_id,
            timeline.started_ns + offset_ns,
            timeline.ended_ns + offset_ns,
        )
        if not request.runs_model:
            return
        stage_trace = span_bytes.encode_trace(trace_id, own_id)
        for index, stage in enumerate(timeline.stages(), 3):
            yield span_bytes.encode_span(
                _STAGES[stage.name],
                stage_trace,
                ids[8 * index : 8 * index + 8],
                stage.start_ns + offset_ns,
                stage.end_ns + offset_ns,
            )

    def _is_sampled(
        self, trace_id: bytes, context: Context | None, parent: SpanContext | None
    ) -> bool:
        # Make the decision of OpenTelemetry's default sampler here, without a call of the sampler:
        # the call would take a third of the time in which the spans of a request are created.
        if self._sampler is DEFAULT_ON:
            return parent is None or parent.trace_flags.sampled
        sampling = self._sampler.should_sample(
            context, int.from_bytes(trace_id, "big"), "", SpanKind.SERVER
        )
        return sampling.decision.is_sampled()


def _describe_bytes(
    describe: Callable[..., _Description],
    details: tuple[str | int, ...],
    host: str,
    agent: str,
    labels: Labels,
    has_parent: bool,
    trace_state: str,
) -> bytes:
    name, attributes, is_error = describe(*details, host, agent)
    names = ("tpuserve.model", "tpuserve.version", "tpuserve.signature", "tpuserve.metagraph")
    model = {key: value for key, value in zip(names, labels, strict=False) if value}
    return span_bytes.describe_span(
        name, span_bytes.SERVER, has_parent, {**attributes, **model}, trace_state, is_error
    )


def _describe_http(
    method: str,
    route: str,
    path: str,
    scheme: str,
    status: int,
    peer: str,
    host: str,
    agent: str,
) -> _Description:
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
    return _Description(f"{name} {route}".strip(), attributes, status >= 500)


def _split_host(host: str) -> tuple[str, int]:
    """Split the value of the header Host into the host and the port.

    The port is 0 if the value has no valid port. A client may send any text as the value.
    """
    server, _, text = host.rpartition(":")
    is_port = text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _MAX_PORT
    return (server, int(text)) if is_port else (host, 0)


def _describe_rpc(method: str, status: str, peer: str, host: str, agent: str) -> _Description:
    name = method.removeprefix("/")
    attributes = {_RPC_SYSTEM: "grpc", _RPC_METHOD: name, _RPC_STATUS: status}
    if peer:
        attributes[network_attributes.NETWORK_PEER_ADDRESS] = peer
    if status != "OK":
        attributes[error_attributes.ERROR_TYPE] = status
    return _Description(name, attributes, status in _SERVER_ERRORS)


def _select(
    headers: Iterable[tuple[str | bytes, str | bytes]],
) -> list[tuple[str | bytes, str | bytes]]:
    """Return only the headers that spans need, without values of more than `_MAX_TEXT` characters.

    All other headers, which may be large, must not stay in memory until the spans are created.
    """
    return [
        (name, value) for name, value in headers if name in _RAW_HEADERS and len(value) <= _MAX_TEXT
    ]


def _read_headers(
    headers: Iterable[tuple[str | bytes, str | bytes]],
) -> tuple[dict[str, str], str, str]:
    """Return the values of the headers that spans need.

    Args:
      headers: the headers that `_select` has returned.

    Returns:
      The headers of W3C Trace Context by their names, the header Host, and the header User-Agent. A
      missing header Host or User-Agent is "".
    """
    carrier: dict[str, str] = {}
    host = agent = ""
    for raw_name, raw_value in headers:
        name = raw_name if isinstance(raw_name, str) else raw_name.decode("latin-1")
        value = raw_value if isinstance(raw_value, str) else raw_value.decode("latin-1")
        if name == "host":
            host = value
        elif name == "user-agent":
            agent = value
        else:
            carrier[name] = value
    return carrier, host, agent
