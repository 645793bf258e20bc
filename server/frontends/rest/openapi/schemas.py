"""Builds JSON schemas of the inputs and outputs of a signature."""

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
# If a tensor has at most this number of elements, its schema sets a minimum length of the lists.
# For a larger tensor, it sets only a maximum length: Swagger UI generates an example with all
# required elements, and for an image of 224 x 224 x 3 this would block the browser for minutes.
_MAX_REQUIRED_ELEMENTS = 4096
# Dtype of a tensor → size in bits of the signed integers that the server accepts in JSON. As in
# TensorFlow Serving, an integer for int8, int16 or uint8 may have 32 bits, and loses its high bits.
_BITS = {"int8": 32, "int16": 32, "int32": 32, "uint8": 32, "int64": 64}

EXAMPLE: Json = {
    "type": "object",
    "additionalProperties": {"anyOf": [_VALUE, {"type": "array", "items": _VALUE}]},
}
"""The schema of a tf.train.Example: features with one value or a list of values."""


def is_signature_def(definition: Any) -> bool:
    """Return whether an object is a SignatureDef message."""
    return hasattr(definition, "inputs") and hasattr(definition, "outputs")


def build_row_schema(tensors: Mapping[str, Any]) -> Json:
    """Build the JSON schema of the member "instances" or "predictions" (row format).

    The value is a list with an element for each example. The element is an object with a member for
    each tensor. If there is only one tensor, the element may also be the value of this tensor
    without the object.

    Args:
      tensors: The TensorInfo message of each tensor, by the alias of the tensor.
    """
    items = {name: _build_tensor(tensor, 1) for name, tensor in sorted(tensors.items())}
    if len(items) == 1:
        (value,) = items.values()
        # Allow a list of values or a list of objects, but no mixture of both: all elements must
        # have the format of the first.
        return {"anyOf": [_build_list(value), _build_list(_build_object(items))]}
    return _build_list(_build_object(items))


def build_columnar_schema(tensors: Mapping[str, Any]) -> Json:
    """Build the JSON schema of the member "inputs" or "outputs" (columnar format).

    The value is an object with a member for each tensor. If there is only one tensor, the value may
    also be the value of this tensor without the object.

    Args:
      tensors: The TensorInfo message of each tensor, by the alias of the tensor.
    """
    items = {name: _build_tensor(tensor, 0) for name, tensor in sorted(tensors.items())}
    if len(items) == 1:
        (value,) = items.values()
        return {"anyOf": [value, _build_object(items)]}
    return _build_object(items)


def _build_object(properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _build_list(item: Json) -> Json:
    return {"type": "array", "items": item, "minItems": 1}


def _build_tensor(tensor: Any, num_left_out: int) -> Json:
    """Build the JSON schema of the value of a tensor: nested lists of its elements.

    Args:
      tensor: The TensorInfo message of the tensor.
      num_left_out: The number of leading dimensions that the value does not have: 1 for one
        example of a batch, 0 for the whole tensor.
    """
    shape = tensor.tensor_shape
    dtype = dtypes.dtype_name(tensor.dtype)
    schema = _build_element(dtype)
    if shape.unknown_rank:
        return {"description": f"{dtype} of any shape"}
    sizes = [dimension.size for dimension in shape.dim[num_left_out:]]
    is_size_required = math.prod(size for size in sizes if size >= 0) <= _MAX_REQUIRED_ELEMENTS
    for size in reversed(sizes):
        schema = {"type": "array", "items": schema}
        if size >= 0:
            schema["maxItems"] = size
        if size >= 0 and is_size_required:
            schema["minItems"] = size
    if not is_size_required:
        text = " x ".join(str(size) if size >= 0 else "any" for size in sizes)
        schema["description"] = f"{dtype} of shape {text}, all elements required"
    return schema


def _build_element(dtype: str) -> Json:
    if dtype == "string":
        return _STRING
    if dtype == "bool":
        return {"type": "boolean"}
    if dtype in _BITS:
        bound = 2 ** (_BITS[dtype] - 1)
        schema: Json = {"type": "integer", "minimum": -bound, "maximum": bound - 1}
        return {**schema, "format": "int64"} if dtype == "int64" else schema
    if dtype in ("uint32", "uint64"):
        return {"type": "integer", "minimum": 0, "maximum": 2 ** int(dtype[4:]) - 1}
    return {"type": "number"}
