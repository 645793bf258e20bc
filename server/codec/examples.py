"""JSON examples of classify and regress → serialised tf.train.Example messages."""

import struct
from collections.abc import Sequence

from server.codec.json_parser import Json, type_name
from server.codec.json_to_array import decode_base64, is_base64
from tpuserve.errors import InvalidJson

_INT64_MAX = 2**63 - 1
# Numbers of fields. Source: tensorflow/core/example/example.proto, feature.proto.
_FEATURES = 1
_KEY, _VALUE = 1, 2
_LISTS = {"bytes": 1, "float": 2, "int64": 3}


def decode(document: Json) -> list[bytes]:
    """The examples of a request body, each with the context before it.

    Texts say "classify" of regress too, as TensorFlow Serving's do.

    Raises:
      InvalidJson: no examples, or one that is no example.
    """
    context = encode_example(document["context"]) if "context" in document else b""
    if "examples" not in document:
        raise InvalidJson("When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if type_name(examples) != "Array":
        raise InvalidJson("Expecting 'examples' value to be an list/array")
    if type(examples) is not list:
        examples = examples.tolist()
    if not examples:
        raise InvalidJson("'examples' value is an empty array")
    # One message after another is their merger, in which the later one wins.
    return [context + encode_example(each) for each in examples]


def encode_example(value: Json) -> bytes:
    """The tf.train.Example of an object {feature: value or list of values}.

    The kind of a feature is that of its values: whole numbers and booleans, other numbers, or
    strings and {"b64": "..."}.

    Raises:
      InvalidJson: no object, a value that no feature holds, or kinds that differ.
    """
    if type(value) is not dict:
        raise InvalidJson(f"Example must be JSON object but got JSON {type_name(value)}")
    features = b"".join(
        _message(_FEATURES, _message(_KEY, _utf8(name)) + _message(_VALUE, _feature(name, each)))
        for name, each in value.items()
    )
    return _message(_FEATURES, features)


def _feature(name: str, value: Json) -> bytes:
    if type_name(value) == "Array" and type(value) is not list:
        value = value.tolist()
    values = value if type(value) is list else [value]
    if not values:
        return b""
    kind = _kind(name, values[0])
    for each in values:
        if _kind(name, each) != kind:
            raise InvalidJson(f"Unexpected element type in feature: {name} expecting type: {kind}")
    return _message(_LISTS[kind], _list(kind, values))


def _kind(name: str, value: Json) -> str:
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
    raise InvalidJson(f"Feature: {name} has element with unexpected JSON type: {type_name(value)}")


def _list(kind: str, values: Sequence[Json]) -> bytes:
    if kind == "bytes":
        return b"".join(_message(1, _bytes(each)) for each in values)
    if kind == "int64":
        return _message(1, b"".join(_varint(int(each) % 2**64) for each in values))
    return _message(1, b"".join(map(_float, values)))


def _bytes(value: Json) -> bytes:
    return _utf8(value) if type(value) is str else decode_base64(value["b64"])


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # beyond the type's range is infinity
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _message(number: int, content: bytes) -> bytes:
    # A field with a length: wire type 2.
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
