"""Serialises spans to OTLP's protobuf messages.

The fields that differ from request to request have a fixed size, and are packed with `struct`. The
other fields are serialised by protobuf once, and then come from a cache. Source:
opentelemetry/proto/trace/v1/trace.proto.
"""

import struct
from collections.abc import Iterable, Mapping

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from server.tensors.protobuf_wire import encode_field, field_tag

INTERNAL, SERVER = Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_SERVER

# The flags of a sampled span, which also say whether its parent is in another process.
LOCAL_PARENT, REMOTE_PARENT = 0x101, 0x301

# Of a span: trace_id (1), span_id (2), start_time_unix_nano (7), end_time_unix_nano (8), flags (16)
# and, of a span with a parent, parent_span_id (4); each with its tag.
_FIELDS = struct.Struct("<2s16s2s8scQcQ2sI")
_FIELDS_WITH_PARENT = struct.Struct("<2s16s2s8scQcQ2sI2s8s")
# The tags of `resource_spans` of a request, `resource` and `scope_spans` of its elements, and
# `scope` and `spans` of theirs.
_TAG_1, _TAG_2 = field_tag(1), field_tag(2)

Value = str | int


def encode_span(
    trace_id: bytes,
    span_id: bytes,
    parent_id: bytes,
    start_ns: int,
    end_ns: int,
    flags: int,
    description: bytes,
) -> bytes:
    """Serialise a span.

    Args:
      trace_id: 16 bytes.
      span_id: 8 bytes.
      parent_id: the ID of the parent, 8 bytes; empty for a span without a parent.
      start_ns: the start in nanoseconds since 1970.
      end_ns: the end in nanoseconds since 1970.
      flags: `LOCAL_PARENT` or `REMOTE_PARENT`.
      description: the other fields, from `describe_span`.
    """
    fields = (
        *(b"\x0a\x10", trace_id, b"\x12\x08", span_id),
        *(b"\x39", start_ns, b"\x41", end_ns, b"\x85\x01", flags),
    )
    if not parent_id:
        return _FIELDS.pack(*fields) + description
    return _FIELDS_WITH_PARENT.pack(*fields, b"\x22\x08", parent_id) + description


def describe_span(
    name: str,
    kind: "Span.SpanKind.ValueType",
    attributes: Mapping[str, Value] | None = None,
    trace_state: str = "",
    is_error: bool = False,
) -> bytes:
    """Serialise the fields of a span that many spans have in common.

    Args:
      name: the name of the span.
      kind: INTERNAL or SERVER.
      attributes: the attributes of the span.
      trace_state: the W3C trace state; empty for none.
      is_error: whether the server has failed.
    """
    span = Span(
        name=name, kind=kind, attributes=_key_values(attributes or {}), trace_state=trace_state
    )
    if is_error:
        span.status.code = Status.STATUS_CODE_ERROR
    return bytes(span.SerializeToString())


class RequestEncoder:
    """Serialises requests with spans of one resource and one instrumentation scope."""

    def __init__(self, resource: Mapping[str, Value], scope: str, version: str) -> None:
        """Create an encoder.

        Args:
          resource: the attributes of the resource, such as the name of the service.
          scope: the name of the instrumentation scope.
          version: the version of the instrumentation scope.
        """
        message = Resource(attributes=_key_values(resource))
        self._resource = encode_field(_TAG_1, message.SerializeToString())
        scope_message = InstrumentationScope(name=scope, version=version)
        self._scope = encode_field(_TAG_1, scope_message.SerializeToString())

    def encode(self, spans: Iterable[bytes]) -> bytes:
        """Return a serialised ExportTraceServiceRequest with spans of `encode_span`."""
        scope_spans = self._scope + b"".join(encode_field(_TAG_2, span) for span in spans)
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
