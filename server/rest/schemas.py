"""JSON schemas of the tensors of a signature."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tpuserve import dtypes

Json: TypeAlias = dict[str, Any]

_BASE64: Json = {
    "type": "object",
    "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["b64"],
    "additionalProperties": False,
}
_STRING: Json = {"anyOf": [{"type": "string"}, _BASE64]}
_VALUE: Json = {"anyOf": [{"type": "number"}, {"type": "boolean"}, *_STRING["anyOf"]]}
_BITS = {"int8": 32, "int16": 32, "int32": 32, "uint8": 32, "int64": 64}

EXAMPLE: Json = {
    "type": "object",
    "additionalProperties": {"anyOf": [_VALUE, {"type": "array", "items": _VALUE}]},
}
"""A tf.train.Example: features, each of one value or many."""


def is_described(definition: Any) -> bool:
    """Whether something is a SignatureDef message."""
    return hasattr(definition, "inputs") and hasattr(definition, "outputs")


def rows(tensors: Mapping[str, Any]) -> Json:
    """The schema of tensors in row form: a list with a value or an object a row.

    Args:
      tensors: alias → TensorInfo message.
    """
    items = {name: _nested(each, 1) for name, each in sorted(tensors.items())}
    if len(items) == 1:
        (plain,) = items.values()
        item = {"anyOf": [plain, _object(items)]}
    else:
        item = _object(items)
    return {"type": "array", "items": item, "minItems": 1}


def columns(tensors: Mapping[str, Any]) -> Json:
    """The schema of tensors in columnar form: one value, or an object of them."""
    items = {name: _nested(each, 0) for name, each in sorted(tensors.items())}
    if len(items) == 1:
        (plain,) = items.values()
        return {"anyOf": [plain, _object(items)]}
    return _object(items)


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _nested(tensor: Any, first: int) -> Json:
    # The tensor from its so-manieth dimension on.
    shape = tensor.tensor_shape
    schema = _element(dtypes.name_of(tensor.dtype))
    if shape.unknown_rank:
        return {"description": f"{dtypes.name_of(tensor.dtype)} of any shape"}
    for dimension in reversed(shape.dim[first:]):
        schema = {"type": "array", "items": schema}
        if dimension.size >= 0:
            schema.update(minItems=dimension.size, maxItems=dimension.size)
    return schema


def _element(dtype: str) -> Json:
    if dtype == "string":
        return _STRING
    if dtype == "bool":
        return {"type": "boolean"}
    if dtype in _BITS:
        bound = 2 ** (_BITS[dtype] - 1)
        return {"type": "integer", "minimum": -bound, "maximum": bound - 1}
    if dtype in ("uint32", "uint64"):
        return {"type": "integer", "minimum": 0, "maximum": 2 ** int(dtype[4:]) - 1}
    return {"type": "number"}
