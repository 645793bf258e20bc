"""The element types of a TensorProto, each with its field in the message and its NumPy dtype.

Source: tensorflow/core/framework/tensor.proto.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tpuserve.proto import protobuf_wire
from tpuserve.saved_model import dtypes


@dataclass(frozen=True)
class ElementType:
    """An element type of a TensorProto, such as float32.

    Attributes:
      is_raw: whether the values in the serialised field have the same bytes as an array in the
        memory of a little-endian machine. Such bytes are copied without conversion.
      parts: for a complex type, the dtype of the real and of the imaginary part. In the field,
        these two numbers follow one another. None for other types.
      bits: for float16 and bfloat16, the unsigned dtype of the bit pattern of a value. The field
        holds the bit patterns as int32 numbers. None for other types.
      tag: the field's protobuf tag (field number and wire type) in serialised form.
    """

    number: int
    field: str
    dtype: np.dtype[Any]
    is_raw: bool
    parts: np.dtype[Any] | None
    bits: np.dtype[Any] | None
    tag: bytes


_PARTS: dict[str, np.dtype[Any]] = {
    "scomplex_val": np.dtype(np.float32),
    "dcomplex_val": np.dtype(np.float64),
}
_BITS: dict[str, np.dtype[Any]] = {"half_val": np.dtype(np.uint16)}
_NUMBERS = {name: number for number, name in dtypes.DTYPE_NAMES.items()}


def _element_type(
    name: str, field: str, field_number: int, dtype: Any, is_raw: bool = False
) -> ElementType:
    parts, bits = _PARTS.get(field), _BITS.get(field)
    tag = protobuf_wire.field_tag(field_number)
    return ElementType(_NUMBERS[name], field, np.dtype(dtype), is_raw, parts, bits, tag)


_ELEMENT_TYPES = (
    _element_type("float32", "float_val", 5, np.float32, is_raw=True),
    _element_type("float64", "double_val", 6, np.float64, is_raw=True),
    _element_type("int8", "int_val", 7, np.int8),
    _element_type("int16", "int_val", 7, np.int16),
    _element_type("int32", "int_val", 7, np.int32),
    _element_type("int64", "int64_val", 10, np.int64),
    _element_type("uint8", "int_val", 7, np.uint8),
    _element_type("uint16", "int_val", 7, np.uint16),
    _element_type("uint32", "uint32_val", 16, np.uint32),
    _element_type("uint64", "uint64_val", 17, np.uint64),
    _element_type("bool", "bool_val", 11, np.bool_, is_raw=True),
    _element_type("float16", "half_val", 13, np.float16),
    _element_type("bfloat16", "half_val", 13, ml_dtypes.bfloat16),
    _element_type("complex64", "scomplex_val", 9, np.complex64, is_raw=True),
    _element_type("complex128", "dcomplex_val", 12, np.complex128, is_raw=True),
    _element_type("string", "string_val", 8, object),
)

BY_NUMBER: dict[int, ElementType] = {
    element_type.number: element_type for element_type in _ELEMENT_TYPES
}
"""The element types by their DataType number."""

# NumPy dtype → element type. The keys are the dtypes themselves and not their names, because NumPy
# computes the name of a dtype on each access.
BY_DTYPE: dict[np.dtype[Any], ElementType] = {
    element_type.dtype: element_type for element_type in _ELEMENT_TYPES
}
"""The element types by their NumPy dtype."""
