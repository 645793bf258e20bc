"""Serialises spans to OTLP's protobuf messages.

To save time, the bytes of a span are joined from two kinds of parts. The fields that differ between
requests have a fixed size, and are packed with `struct`. The other fields are serialised by
protobuf, and may be cached by the caller. Source: opentelemetry/proto/trace/v1/trace.proto.
"""

import struct
from collections.abc import Iterable, Mapping

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from server.tensors.protobuf_wire import encode_field, encode_varint, field_tag

INTERNAL, SERVER = Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_SERVER

# The values of the field `flags` of a sampled span. _REMOTE_PARENT is for a span whose parent is in
# another process, _LOCAL_PARENT for all other spans.
_LOCAL_PARENT, _REMOTE_PARENT = 0x101, 0x301

# The layout of the fields that are different for each span: span_id (2), start_time_unix_nano (7)
# and end_time_unix_nano (8), each after its protobuf tag.
_OWN_FIELDS = struct.Struct("<2s8scQcQ")
# The sizes in bytes of the serialised fields trace_id (1) and parent_span_id (4), including their
# tags and lengths. The length of a span is computed from these sizes.
_TRACE_SIZE, _PARENT_SIZE = 18, 10
# The protobuf tags of fields 1 and 2. An ExportTraceServiceRequest has `resource_spans` (1). A
# ResourceSpans message has `resource` (1) and `scope_spans` (2). A ScopeSpans message has `scope`
# (1) and `spans` (2).
_TAG_1, _TAG_2 = field_tag(1), field_tag(2)

Value = str | int


def encode_trace(trace_id: bytes, parent_id: bytes) -> bytes:
    """Serialise the fields trace_id and parent_span_id of a Span message.

    All spans with the same parent can use the result.

    Args:
      trace_id: the ID of the trace, 16 bytes.
      parent_id: the ID of the parent span, 8 bytes; empty for a span without a parent.
    """
    fields = b"\x0a\x10" + trace_id
    return fields + b"\x22\x08" + parent_id if parent_id else fields


def encode_span(
    description: bytes, trace: bytes, span_id: bytes, start_ns: int, end_ns: int
) -> bytes:
    """Serialise a span as an element of the field `spans` of a ScopeSpans message.

    Args:
      description: all fields of the span except the IDs and times, from `describe_span`.
      trace: the IDs of the trace and of the parent span, from `encode_trace`.
      span_id: the ID of the span, 8 bytes.
      start_ns: the start of the span in nanoseconds since 1970.
      end_ns: the end of the span in nanoseconds since 1970.
    """
    return b"".join(
        (
            description,
            trace,
            _OWN_FIELDS.pack(b"\x12\x08", span_id, b"\x39", start_ns, b"\x41", end_ns),
        )
    )


def describe_span(
    name: str,
    kind: "Span.SpanKind.ValueType",
    has_parent: bool,
    attributes: Mapping[str, Value] | None = None,
    trace_state: str = "",
    is_error: bool = False,
) -> bytes:
    """Serialise the beginning of a span, with all fields except the IDs and times.

    The result begins with the tag and the length of the span. Many spans have the same beginning,
    so that the caller can cache it.

    Args:
      name: the name of the span.
      kind: INTERNAL or SERVER.
      has_parent: whether the span has a parent span. The parent of a SERVER span is in another
        process.
      attributes: the attributes of the span; None for none.
      trace_state: the W3C trace state; empty for none.
      is_error: whether the status of the span is an error, because the server has failed.
    """
    span = Span(
        name=name,
        kind=kind,
        attributes=_key_values(attributes or {}),
        trace_state=trace_state,
        flags=_REMOTE_PARENT if has_parent and kind == SERVER else _LOCAL_PARENT,
    )
    if is_error:
        span.status.code = Status.STATUS_CODE_ERROR
    fields = span.SerializeToString()
    size = len(fields) + _TRACE_SIZE + _PARENT_SIZE * has_parent + _OWN_FIELDS.size
    return b"".join((_TAG_2, encode_varint(size), fields))


class RequestEncoder:
    """Serialises ExportTraceServiceRequests, whose spans all have the same resource and scope."""

    def __init__(self, resource: Mapping[str, Value], scope: str, version: str) -> None:
        """Create an encoder.

        Args:
          resource: the attributes of the resource, such as the name of the service.
          scope: the name of the instrumentation scope, which is the library that makes the spans.
          version: the version of the instrumentation scope.
        """
        message = Resource(attributes=_key_values(resource))
        self._resource = encode_field(_TAG_1, message.SerializeToString())
        scope_message = InstrumentationScope(name=scope, version=version)
        self._scope = encode_field(_TAG_1, scope_message.SerializeToString())

    def encode(self, spans: Iterable[bytes]) -> bytes:
        """Return a serialised ExportTraceServiceRequest.

        Args:
          spans: the serialised spans, from `encode_span`.
        """
        scope_spans = self._scope + b"".join(spans)
        return encode_field(_TAG_1, self._resource + encode_field(_TAG_2, scope_spans))


def _key_values(attributes: Mapping[str, Value]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value)
            if isinstance(value, int)
            else AnyValue(string_value=str(value)),
        )
        for key, value in attributes.items()
    ]
