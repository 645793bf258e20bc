"""Describes what is known of a tensor without running the graph: its size, shape and elements."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tpuserve.saved_model.variables import ELEMENT_BYTES, shape_from_proto

Shape: TypeAlias = tuple[int | None, ...]
Content: TypeAlias = tuple[float, ...]

# The largest number of elements of a tensor whose elements are tracked. Shapes, whose elements
# determine the memory of other tensors, have fewer elements.
MAX_CONTENT = 64
# The size in bytes of an element of a dtype that is not in ELEMENT_BYTES, such as string or
# resource: the size of the C++ object without the data to which it points.
_OBJECT_BYTES = 24
# DataType number → the field of TensorProto that has the values of this dtype, and the format by
# which Python's struct module reads an element of tensor_content.
_NUMBERS = {
    1: ("float_val", "f"),
    2: ("double_val", "d"),
    3: ("int_val", "i"),
    9: ("int64_val", "q"),
}


@dataclass(frozen=True)
class TensorValue:
    """The known properties of a tensor in a graph that has not run.

    Attributes:
      element_bytes: the size of an element in bytes.
      shape: the size of each dimension, None for an unknown size; None if the rank is unknown.
      content: the elements in row-major order; None if they are unknown or too many.
      is_constant: whether the value of the tensor depends only on the graph and not on a request.
    """

    element_bytes: int = 0
    shape: Shape | None = None
    content: Content | None = None
    is_constant: bool = False

    @property
    def least_bytes(self) -> int:
        """A lower bound of the size in bytes: unknown dimensions count as 1.

        It is 0 if the rank is unknown.
        """
        if self.shape is None:
            return 0
        sizes = (1 if size is None or size < 0 else size for size in self.shape)
        return math.prod(sizes) * self.element_bytes

    @property
    def scalar(self) -> float | None:
        """The element of a tensor with a single element; None if it is unknown."""
        return self.content[0] if self.content and len(self.content) == 1 else None

    @property
    def sizes(self) -> Shape | None:
        """The elements as integers, for a tensor whose value is a shape; None if unknown."""
        if self.content is None or not all(map(math.isfinite, self.content)):
            return None
        return tuple(int(size) for size in self.content)

    def as_variable(self) -> "TensorValue":
        """Return a copy with unknown elements, for a tensor whose value each request feeds."""
        return replace(self, content=None, is_constant=False)


UNKNOWN = TensorValue()
UNKNOWN_CONSTANT = TensorValue(is_constant=True)


def element_bytes(dtype: int) -> int:
    """Return the size of an element in bytes for a dtype, given as its DataType number."""
    return ELEMENT_BYTES.get(dtype, _OBJECT_BYTES)


def value_from_proto(proto: Any) -> TensorValue:
    """Return the properties of the tensor in a TensorProto.

    The elements are included only if they are at most `MAX_CONTENT` numbers of a dtype in
    `_NUMBERS`: float32, float64, int32 or int64.

    If a TensorProto has fewer values than its shape has elements, the last value is repeated, as in
    TensorFlow.
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
    """Return the bytes of memory for the tensor in a TensorProto.

    If its elements are variants, the tensors in these variants are included.
    """
    num_bytes = value_from_proto(proto).least_bytes
    for variant in proto.variant_val:
        num_bytes += sum(map(tensor_proto_bytes, variant.tensors))
    return num_bytes


def join(values: Sequence[TensorValue]) -> TensorValue:
    """Combine the properties of several tensors, one of which the graph selects, as with tf.cond.

    The result has the shape of the largest tensor, and its elements only if all tensors are equal.
    """
    largest = max(values, key=lambda value: value.least_bytes)
    if all(value == largest for value in values):
        return largest
    return replace(largest, content=None, is_constant=all(value.is_constant for value in values))
