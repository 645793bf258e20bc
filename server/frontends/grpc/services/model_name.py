"""Reads the model's name from a serialised request, without parsing the request.

A call waits in the queue of its model, and the request is parsed only after this wait.
"""

import zlib
from functools import lru_cache

from server.frontends.grpc import compression
from tpuserve.proto import protobuf_wire

# The largest number of fields of a message that are searched for the model's name. The limit bounds
# the time for a malicious message.
_MAX_FIELDS = 256
# The largest size, in bytes, of a serialised ModelSpec whose model name is cached. The limit keeps
# clients from filling the memory with large ModelSpecs.
_MAX_CACHED_BYTES = 256
# How many bytes of a compressed request are decompressed to find the model's name. The name is in
# field 1, which serialisers write first.
_BEGINNING_BYTES = 4096
_FIRST_FIELD, _THIRD_FIELD = (protobuf_wire.field_tag(number)[0] for number in (1, 3))
# Wire type → size of the field in bytes, for the wire types with a fixed size.
_FIXED_SIZES = {1: 8, 5: 4}
_VARINT = 0


def read_model_name(raw: bytes) -> str:
    """Return the model's name in a serialised request with the field `model_spec`.

    The function suits all requests whose field 1 is `model_spec`, such as PredictRequest and
    ClassificationRequest, but not MultiInferenceRequest.
    """
    specs = _first_fields(_uncompressed_beginning(raw))
    spec = specs[0] if len(specs) == 1 else b"".join(specs)
    return _cached_name(spec) if len(spec) <= _MAX_CACHED_BYTES else _last_name(spec)


def read_plain_model_name(raw: bytes) -> str:
    """Return the model's name in a serialised request whose field 1 is the name itself.

    Such a request is the ModelInferRequest of the Open Inference Protocol.
    """
    return _last_name(_uncompressed_beginning(raw))


def read_request_id(raw: bytes) -> str:
    """Return the field `id` of a serialised ModelInferRequest; "" if it has none."""
    ids = _first_fields(_uncompressed_beginning(raw), _THIRD_FIELD)
    return ids[-1].decode("utf-8", "replace") if ids else ""


def read_model_name_of_tasks(raw: bytes) -> str:
    """Return the model's name in the first task of a serialised MultiInferenceRequest."""
    tasks = _first_fields(_uncompressed_beginning(raw))
    return read_model_name(tasks[0]) if tasks else ""


def _uncompressed_beginning(raw: bytes) -> bytes:
    window_bits = compression.find_window_bits(raw)
    if window_bits is None:
        return raw
    try:
        return zlib.decompressobj(window_bits).decompress(raw[:_BEGINNING_BYTES], _BEGINNING_BYTES)
    except zlib.error:
        return raw


def _last_name(spec: bytes) -> str:
    names = _first_fields(spec)
    return names[-1].decode("utf-8", "replace") if names else ""


_cached_name = lru_cache(maxsize=1024)(_last_name)


def _first_fields(raw: bytes, wanted_tag: int = _FIRST_FIELD) -> list[bytes]:
    """Return the values of all occurrences of a field, by default 1, in a serialised message."""
    values: list[bytes] = []
    position, stop = 0, len(raw)
    try:
        for _ in range(_MAX_FIELDS):
            if position >= stop:
                break
            tag = raw[position]
            position += 1
            if tag > 0x7F:
                tag, position = protobuf_wire.decode_varint(raw, position - 1)
            wire_type = tag & 7
            if wire_type == protobuf_wire.WIRE_TYPE_LEN:
                length = raw[position]
                position += 1
                if length > 0x7F:
                    length, position = protobuf_wire.decode_varint(raw, position - 1)
                if tag == wanted_tag:
                    values.append(raw[position : position + length])
                position += length
            elif wire_type == _VARINT:
                _, position = protobuf_wire.decode_varint(raw, position)
            else:
                position += _FIXED_SIZES[wire_type]
    except (IndexError, KeyError, ValueError):
        # The message is invalid. Return the values found so far: the protobuf parser will report
        # the error later.
        pass
    return values
