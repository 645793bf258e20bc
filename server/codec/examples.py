"""Converts the JSON of classify and regress requests to serialised tf.train.Example messages."""

import struct
import sys
from collections.abc import Sequence

import numpy as np

from server.codec.json_parser import Json, json_type_name
from server.codec.json_to_array import decode_base64, is_base64
from server.codec.numeric_arrays import RawNumericArray
from tpuserve.errors import InvalidJson
from tpuserve.proto.protobuf_wire import encode_field, encode_varints, field_tag

_INT64_MAX = 2**63 - 1
# The tags of the protobuf fields that this module writes. Source:
# tensorflow/core/example/example.proto, feature.proto.
_FEATURES = _KEY = _VALUES = field_tag(1)
_VALUE = field_tag(2)
_LISTS = {"bytes": field_tag(1), "float": field_tag(2), "int64": field_tag(3)}
_TYPES: dict[str, set[type]] = {"bytes": {str}, "float": {float}, "int64": {int, bool}}
# A bound slightly below the largest float32. A number whose absolute value is below the bound does
# not round to infinity, so it is packed without a check for overflow.
_MAX_FLOAT32 = 3.4e38


def decode_examples(document: Json) -> list[bytes]:
    """Decode the examples of a classify or regress request.

    Error texts say "classify" even for a regress request, as those of TensorFlow Serving do.

    Returns:
      One serialised tf.train.Example per example, merged with the features of the request's
      context.
    """
    return merge_with_context(*decode_separately(document))


def decode_separately(document: Json) -> tuple[bytes, list[bytes]]:
    """Decode a classify or regress request, without merging the context with the examples.

    Returns:
      The context as a serialised tf.train.Example, and one serialised tf.train.Example per example.
      The context is empty if the request has none.
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
    return context, [encode_example(example) for example in examples]


def merge_with_context(context: bytes, examples: Sequence[bytes]) -> list[bytes]:
    """Merge the serialised context of a request with each of its serialised examples.

    The function concatenates the bytes of two messages: protobuf parses the concatenation as one
    merged message, in which the features of the example replace those of the context.
    """
    return [context + example for example in examples]


def count_bytes(context: bytes, examples: Sequence[bytes]) -> int:
    """Return the memory that the result of `merge_with_context` will take, in bytes."""
    return len(examples) * sys.getsizeof(context) + sum(map(len, examples))


def encode_example(value: Json) -> bytes:
    """Serialise an object {feature: value or list of values} as a tf.train.Example.

    A feature of integers or booleans becomes an Int64List, a feature of other numbers a FloatList,
    and a feature of strings or {"b64": "..."} objects a BytesList.
    """
    if type(value) is not dict:
        raise InvalidJson(f"Example must be JSON object but got JSON {json_type_name(value)}")
    features = b"".join(
        [
            encode_field(
                _FEATURES,
                encode_field(_KEY, _to_utf8(name))
                + encode_field(_VALUE, _encode_feature(name, feature)),
            )
            for name, feature in value.items()
        ]
    )
    return encode_field(_FEATURES, features)


def _encode_feature(name: str, value: Json) -> bytes:
    if type(value) is RawNumericArray:
        value = value.tolist()
    if type(value) is not list:
        kind = _get_kind(name, value)
        return encode_field(_LISTS[kind], _encode_list(kind, [value]))
    values = value
    if not values:
        return b""
    kind = _get_kind(name, values[0])
    # Check the set of Python types of all values first, which is much faster than checking each
    # value. Only a list that does not pass this check is checked value by value.
    if not set(map(type, values)) <= _TYPES[kind] or kind == "int64" and max(values) > _INT64_MAX:
        for item in values:
            if _get_kind(name, item) != kind:
                raise InvalidJson(
                    f"Unexpected element type in feature: {name} expecting type: {kind}"
                )
    return encode_field(_LISTS[kind], _encode_list(kind, values))


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
        return b"".join([encode_field(_VALUES, _to_bytes(item)) for item in values])
    if kind == "int64":
        return encode_field(_VALUES, encode_varints(values))
    if len(values) == 1 and -_MAX_FLOAT32 < values[0] < _MAX_FLOAT32:
        return encode_field(_VALUES, struct.pack("<f", values[0]))
    # Numbers beyond the range of float32 become infinity, without a warning of NumPy.
    with np.errstate(over="ignore"):
        return encode_field(_VALUES, np.array(values, np.float64).astype("<f4").tobytes())


def _to_bytes(value: Json) -> bytes:
    return _to_utf8(value) if type(value) is str else decode_base64(value["b64"])


def _to_utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
