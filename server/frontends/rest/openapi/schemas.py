"""JSON schemas of the tensors of a signature."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from tpuserve.saved_model import dtypes

Json: TypeAlias = dict[str, Any]

_BASE64: Json = {
    "type": "object",
    "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["b64"],
    "additionalProperties": False,
}
_STRING: Json = {"anyOf": [{"type": "string"}, _BASE64]}
_VALUE: Json = {"anyOf": [{"type": "number"}, {"type": "boolean"}, *_STRING["anyOf"]]}
# Pages that show the schema make up an example of all that it demands. With an image of
# 224 x 224 x 3 a browser hangs over that for minutes.
_MOST_DEMANDED = 4096
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
    """The schema of tensors in row form: a list with an object a row, or of one tensor a value.

    Args:
      tensors: alias → TensorInfo message.
    """
    items = {name: _nested(each, 1) for name, each in sorted(tensors.items())}
    if len(items) == 1:
        (plain,) = items.values()
        # All rows are in the form of the first: items of either form would allow a mixture.
        return {"anyOf": [_filled(plain), _filled(_object(items))]}
    return _filled(_object(items))


def columns(tensors: Mapping[str, Any]) -> Json:
    """The schema of tensors in columnar form: one value, or an object of them."""
    items = {name: _nested(each, 0) for name, each in sorted(tensors.items())}
    if len(items) == 1:
        (plain,) = items.values()
        return {"anyOf": [plain, _object(items)]}
    return _object(items)


def _object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _filled(item: Json) -> Json:
    return {"type": "array", "items": item, "minItems": 1}


def _nested(tensor: Any, first: int) -> Json:
    # The tensor from its so-manieth dimension on.
    shape = tensor.tensor_shape
    schema = _element(dtypes.dtype_name(tensor.dtype))
    if shape.unknown_rank:
        return {"description": f"{dtypes.dtype_name(tensor.dtype)} of any shape"}
    sizes = [each.size for each in shape.dim[first:]]
    is_demanded = math.prod(size for size in sizes if size >= 0) <= _MOST_DEMANDED
    for size in reversed(sizes):
        schema = {"type": "array", "items": schema}
        if size >= 0:
            schema["maxItems"] = size
        if size >= 0 and is_demanded:
            schema["minItems"] = size
    if not is_demanded:
        told = " x ".join(str(size) if size >= 0 else "any" for size in sizes)
        schema["description"] = f"{dtypes.dtype_name(tensor.dtype)}, {told}: all of it"
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
