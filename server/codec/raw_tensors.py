"""Converts between arrays and the binary form of tensors in the Open Inference Protocol.

Numbers are in row-major order and little-endian. Each element of a BYTES tensor is preceded by its
length, an unsigned integer of four bytes.
"""

import math
import struct
from collections.abc import Callable, Sequence

import numpy as np

from server.codec.datatypes import Datatype
from server.servables.aligned_array import copy_aligned
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import TensorSpec

_LENGTH = struct.Struct("<I")
# _MAX_STRINGS is the largest number of strings in a tensor, the same as for a PredictRequest.
# _STRING_BYTES is the memory in bytes that a string in an array takes besides its content: the
# reference, the header of the Python object and the rounding of its size.
_MAX_STRINGS, _STRING_BYTES = 1_000_000, 64
# The largest number of dimensions that an array can have in NumPy 1. Shapes with more dimensions
# are refused.
_MAX_RANK = 32
# The largest number of elements of 8 bytes, such as the pointers of an array of strings, that NumPy
# can address. NumPy leaves sizes of 0 out of this product.
_MAX_ELEMENTS = 2**60 - 1


def check_shape(name: str, shape: Sequence[int]) -> int:
    """Return the number of elements of a tensor with a shape.

    `name` is the name of the tensor, for the text of an error.

    Raises:
      InvalidTensor: the shape has a negative size, more than 32 dimensions or too many elements.
    """
    if len(shape) > _MAX_RANK:
        raise InvalidTensor(
            f"the shape of input {name!r} has {len(shape)} dimensions. Send at most {_MAX_RANK}."
        )
    if shape and (min(shape) < 0 or math.prod(filter(None, shape)) > _MAX_ELEMENTS):
        raise InvalidTensor(
            f"input {name!r} has the shape {format_shape(shape)}. Send sizes of 0 or more, whose "
            f"product without zeros is below 2^60."
        )
    return math.prod(shape)


def check_matches(name: str, datatype: Datatype, shape: Sequence[int], spec: TensorSpec) -> None:
    """Check that an input has the type and shape that the signature declares."""
    if datatype.tensorflow_name != spec.dtype:
        raise InvalidTensor(
            f"input {name!r} has the datatype {datatype.name}; the signature expects {spec}."
        )
    expected = spec.shape
    if expected is None:
        return
    if len(shape) != len(expected) or any(
        size is not None and size != length for length, size in zip(shape, expected, strict=True)
    ):
        raise InvalidTensor(
            f"input {name!r} has the shape {format_shape(shape)}; the signature expects {spec}."
        )


def decode_raw(
    name: str,
    data: bytes | memoryview,
    datatype: Datatype,
    shape: Sequence[int],
    reserve: Callable[[int], object] = lambda num_bytes: None,
) -> Array:
    """Convert the binary form of a tensor to an array, which is a copy of the data.

    Args:
      reserve: a function that reserves memory. It is called with the number of bytes of the array
        before the array is allocated, and raises an error to refuse the request.
    """
    count = check_shape(name, shape)
    if datatype.dtype.hasobject:
        return _decode_strings(name, data, count, reserve).reshape(shape)
    if count * datatype.dtype.itemsize != len(data):
        raise InvalidTensor(
            f"input {name!r} has {len(data)} bytes of data; {datatype.name} of the shape "
            f"{format_shape(shape)} takes {count * datatype.dtype.itemsize}."
        )
    reserve(len(data))
    if datatype.dtype == np.bool_:
        # Compare each byte with 0 instead of viewing the bytes as bool, because only the bytes 0
        # and 1 are valid in a NumPy array of bool.
        flags: Array = np.frombuffer(data, np.uint8) != 0
        return flags.reshape(shape)
    return copy_aligned(np.frombuffer(data, datatype.dtype)).reshape(shape)


def encode_raw(array: Array) -> bytes | memoryview:
    """Return the binary form of an array.

    The result is a view of the array's memory, without a copy, if the memory already has this form.

    Args:
      array: an array of numbers or booleans, or an object array of bytes, of a dtype that the
        protocol has.
    """
    if array.dtype.hasobject:
        chunks: list[bytes] = []
        for element in array.reshape(-1).tolist():
            chunks += (_LENGTH.pack(len(element)), element)
        return b"".join(chunks)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def format_shape(shape: Sequence[int]) -> str:
    """Format a shape for the text of an error: "[2, 3]"."""
    return f"[{', '.join(map(str, shape))}]"


def _decode_strings(
    name: str, data: bytes | memoryview, count: int, reserve: Callable[[int], object]
) -> Array:
    if count > _MAX_STRINGS:
        raise InvalidTensor(
            f"input {name!r} has {count} strings. Send at most {_MAX_STRINGS} in a tensor."
        )
    if count * _LENGTH.size > len(data):
        raise _wrong_strings(name, count, len(data))
    reserve(count * _STRING_BYTES + len(data))
    content, position = bytes(data), 0
    array = np.empty(count, object)
    for index in range(count):
        start = position + _LENGTH.size
        if start > len(content):
            raise _wrong_strings(name, count, len(content))
        position = start + _LENGTH.unpack_from(content, position)[0]
        array[index] = content[start:position]
    if position != len(content):
        raise _wrong_strings(name, count, len(content))
    return array


def _wrong_strings(name: str, count: int, num_bytes: int) -> InvalidTensor:
    return InvalidTensor(
        f"input {name!r} has {num_bytes} bytes of data, which do not hold {count} strings: each is "
        f"preceded by its length, an unsigned integer of 4 bytes in little-endian order."
    )
