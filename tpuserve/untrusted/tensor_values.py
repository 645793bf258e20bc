"""Describes a tensor that is not computed: its element size, shape and, if small, content."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tpuserve.saved_model.variables import ELEMENT_BYTES, shape_from_proto

Shape: TypeAlias = tuple[int | None, ...]
Content: TypeAlias = tuple[float, ...]

# The content of a tensor with more elements than this counts as unknown. Shapes, whose content
# determines how much is allocated, have fewer elements.
MAX_CONTENT = 64
# The bytes of an element whose dtype is not in ELEMENT_BYTES, such as a string or a handle: the
# size of the C++ object.
_OBJECT_BYTES = 24
# DataType number → the field of a TensorProto and the struct format of `tensor_content`.
_NUMBERS = {
    1: ("float_val", "f"),
    2: ("double_val", "d"),
    3: ("int_val", "i"),
    9: ("int64_val", "q"),
}


@dataclass(frozen=True)
class TensorValue:
    """What is known of a tensor.

    Attributes:
      element_bytes: the size of an element in bytes.
      shape: the size of each dimension, None for an unknown size; None if the rank is unknown.
      content: the elements in row-major order; None if they are unknown or many.
      is_constant: whether the tensor depends on nothing but the graph, and so on no request.
    """

    element_bytes: int = 0
    shape: Shape | None = None
    content: Content | None = None
    is_constant: bool = False

    @property
    def least_bytes(self) -> int:
        """The size in bytes if every unknown dimension has size 1; 0 if the rank is unknown."""
        if self.shape is None:
            return 0
        sizes = (1 if size is None or size < 0 else size for size in self.shape)
        return math.prod(sizes) * self.element_bytes

    @property
    def scalar(self) -> float | None:
        """The value of a tensor with one element, if it is known."""
        return self.content[0] if self.content and len(self.content) == 1 else None

    @property
    def sizes(self) -> Shape | None:
        """The content as whole numbers, for a tensor that holds a shape; None if unknown."""
        if self.content is None or not all(map(math.isfinite, self.content)):
            return None
        return tuple(int(size) for size in self.content)

    def as_variable(self) -> "TensorValue":
        """Return a copy whose content is unknown, because it may differ between runs."""
        return replace(self, content=None, is_constant=False)


UNKNOWN = TensorValue()
UNKNOWN_CONSTANT = TensorValue(is_constant=True)


def element_bytes(dtype: int) -> int:
    """Return the size of an element in bytes, by the number of the DataType."""
    return ELEMENT_BYTES.get(dtype, _OBJECT_BYTES)


def value_from_proto(proto: Any) -> TensorValue:
    """Return the size and shape of a TensorProto, and the content if it is small.

    If a TensorProto lists fewer values than elements, the last value fills the other elements.
    """
    shape = shape_from_proto(proto.tensor_shape)
    value = TensorValue(element_bytes(proto.dtype), shape, None, is_constant=True)
    if proto.dtype not in _NUMBERS or shape is None or None in shape:
        return value
    count = math.prod(size for size in shape if size is not None)
    if not 0 < count <= MAX_CONTENT:
        return value
    field, code = _NUMBERS[proto.dtype]
    numbers: Sequence[float] = getattr(proto, field)
    if proto.tensor_content:
        if len(proto.tensor_content) != count * value.element_bytes:
            return value
        numbers = struct.unpack(f"<{count}{code}", proto.tensor_content)
    numbers = tuple(numbers) or (0,)
    numbers = (*numbers[:count], *[numbers[-1]] * (count - len(numbers)))
    return replace(value, content=numbers)


def tensor_proto_bytes(proto: Any) -> int:
    """Return the bytes that a TensorProto takes in memory, with the tensors in its variants."""
    num_bytes = value_from_proto(proto).least_bytes
    for variant in proto.variant_val:
        num_bytes += sum(map(tensor_proto_bytes, variant.tensors))
    return num_bytes


def join(values: Sequence[TensorValue]) -> TensorValue:
    """Return what is known of a tensor that may be any of these, such as the result of a branch.

    The size is that of the largest tensor.
    """
    largest = max(values, key=lambda value: value.least_bytes)
    if all(value == largest for value in values):
        return largest
    return replace(largest, content=None, is_constant=all(value.is_constant for value in values))
