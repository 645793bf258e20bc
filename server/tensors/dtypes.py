"""The element types of a TensorProto: the field of each, and what its values are in memory.

Source: tensorflow/core/framework/tensor.proto.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from server.tensors import protobuf_wire
from tpuserve.saved_model import dtypes


@dataclass(frozen=True)
class ElementType:
    """One element type.

    Attributes:
      number: DataType in a proto.
      field: where a TensorProto holds values of it.
      dtype: of an array of it.
      is_raw: whether the bytes of a packed field are the array's own, on a little-endian machine.
      parts: the type of the two parts of a complex number; None where it is no such type.
      bits: the type whose bits a proto holds in wider integers; None where it holds values.
      tag: of the packed field.
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


def _type(name: str, field: str, number: int, dtype: Any, is_raw: bool = False) -> ElementType:
    parts, bits, tag = _PARTS.get(field), _BITS.get(field), protobuf_wire.tag(number)
    return ElementType(_NUMBERS[name], field, np.dtype(dtype), is_raw, parts, bits, tag)


_ALL = (
    _type("float32", "float_val", 5, np.float32, is_raw=True),
    _type("float64", "double_val", 6, np.float64, is_raw=True),
    _type("int8", "int_val", 7, np.int8),
    _type("int16", "int_val", 7, np.int16),
    _type("int32", "int_val", 7, np.int32),
    _type("int64", "int64_val", 10, np.int64),
    _type("uint8", "int_val", 7, np.uint8),
    _type("uint16", "int_val", 7, np.uint16),
    _type("uint32", "uint32_val", 16, np.uint32),
    _type("uint64", "uint64_val", 17, np.uint64),
    _type("bool", "bool_val", 11, np.bool_, is_raw=True),
    _type("float16", "half_val", 13, np.float16),
    _type("bfloat16", "half_val", 13, ml_dtypes.bfloat16),
    # Two values an element: the real part and the imaginary one.
    _type("complex64", "scomplex_val", 9, np.complex64, is_raw=True),
    _type("complex128", "dcomplex_val", 12, np.complex128, is_raw=True),
    _type("string", "string_val", 8, object),
)
# By number for reading, by the array's type for writing: its name takes long to be made.
BY_NUMBER: dict[int, ElementType] = {each.number: each for each in _ALL}
BY_DTYPE: dict[np.dtype[Any], ElementType] = {each.dtype: each for each in _ALL}
