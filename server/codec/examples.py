"""Converts the JSON examples of classify and regress to serialised tf.train.Example messages."""

import struct
from collections.abc import Sequence

from server.codec.json_parser import Json, json_type_name
from server.codec.json_to_array import decode_base64, is_base64
from tpuserve.errors import InvalidJson

_INT64_MAX = 2**63 - 1
# The numbers of the protobuf fields. Source: tensorflow/core/example/example.proto, feature.proto.
_FEATURES = 1
_KEY, _VALUE = 1, 2
_LISTS = {"bytes": 1, "float": 2, "int64": 3}


def decode_examples(document: Json) -> list[bytes]:
    """Decode the examples of a classify or regress request.

    Error texts say "classify" even for a regress request, as those of TensorFlow Serving do.

    Args:
      document: The parsed request body, an object.

    Returns:
      One serialised tf.train.Example per example, merged with the request's context.

    Raises:
      InvalidJson: The request has no examples, or an example is invalid.
    """
    context = encode_example(document["context"]) if "context" in document else b""
    if "examples" not in document:
        raise InvalidJson("When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if json_type_name(examples) != "Array":
        raise InvalidJson("Expecting 'examples' value to be an list/array")
    if type(examples) is not list:
        examples = examples.tolist()
    if not examples:
        raise InvalidJson("'examples' value is an empty array")
    # Concatenate the serialised context and example: protobuf parses them as one merged message, in
    # which the fields of the example take precedence.
    return [context + encode_example(example) for example in examples]


def encode_example(value: Json) -> bytes:
    """Serialise an object {feature: value or list of values} as a tf.train.Example.

    A feature of integers or booleans becomes an Int64List, of other numbers a FloatList, of strings
    or {"b64": "..."} objects a BytesList.

    Raises:
      InvalidJson: The value is no object, a feature cannot hold a value, or the values of a
        feature are of different kinds.
    """
    if type(value) is not dict:
        raise InvalidJson(f"Example must be JSON object but got JSON {json_type_name(value)}")
    features = b"".join(
        _encode_message(
            _FEATURES,
            _encode_message(_KEY, _to_utf8(name))
            + _encode_message(_VALUE, _encode_feature(name, feature)),
        )
        for name, feature in value.items()
    )
    return _encode_message(_FEATURES, features)


def _encode_feature(name: str, value: Json) -> bytes:
    if json_type_name(value) == "Array" and type(value) is not list:
        value = value.tolist()
    values = value if type(value) is list else [value]
    if not values:
        return b""
    kind = _get_kind(name, values[0])
    for item in values:
        if _get_kind(name, item) != kind:
            raise InvalidJson(f"Unexpected element type in feature: {name} expecting type: {kind}")
    return _encode_message(_LISTS[kind], _encode_list(kind, values))


def _get_kind(name: str, value: Json) -> str:
    if type(value) is int:
        if value > _INT64_MAX:
            raise InvalidJson(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        return "int64"
    if type(value) is bool:
        return "int64"
    if type(value) is float:
        return "float"
    if type(value) is str or is_base64(value):
        return "bytes"
    raise InvalidJson(
        f"Feature: {name} has element with unexpected JSON type: {json_type_name(value)}"
    )


def _encode_list(kind: str, values: Sequence[Json]) -> bytes:
    if kind == "bytes":
        return b"".join(_encode_message(1, _to_bytes(item)) for item in values)
    if kind == "int64":
        return _encode_message(1, b"".join(_encode_varint(int(item) % 2**64) for item in values))
    return _encode_message(1, b"".join(map(_encode_float, values)))


def _to_bytes(value: Json) -> bytes:
    return _to_utf8(value) if type(value) is str else decode_base64(value["b64"])


def _to_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _encode_float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # Numbers beyond the range of float32 become infinity.
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _encode_message(field_number: int, content: bytes) -> bytes:
    # Use wire type 2 of protobuf, which marks a field that begins with the length of its content.
    return bytes([field_number << 3 | 2]) + _encode_varint(len(content)) + content


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
