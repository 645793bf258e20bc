"""Converts arrays to and from the binary tensors of the Open Inference Protocol (KServe V2).

Source: the specification of the protocol, and Triton's binary tensor data extension.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpuserve.client import arrays
from tpuserve.client.arrays import Array
from tpuserve.client.call import ModelReference
from tpuserve.errors import (
    Code,
    CodedError,
    InvalidInput,
    InvalidReply,
    InvalidSetting,
    NotFound,
    UnsupportedCall,
)
from tpuserve.saved_model.signature import TensorSpec

SIGNATURE_PARAMETER = "TF_SIGNATURE_DEF"
"""The parameter of Triton's model configuration that has the name of a model's signature."""
NO_EXTENSION = (InvalidInput, NotFound, UnsupportedCall)
"""The errors with which a server without Triton's model configuration can answer."""

_LENGTH = struct.Struct("<I")
# TensorFlow's name of a dtype → the datatype of the Open Inference Protocol.
_NAMES = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{kind}{bits}".upper() for kind in ("int", "uint") for bits in (8, 16)},
    **{f"{kind}{bits}": f"{kind}{bits}".upper() for kind in ("int", "uint") for bits in (32, 64)},
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}
_TENSORFLOW_NAMES = {name: tensorflow_name for tensorflow_name, name in _NAMES.items()}


def check_model(model: ModelReference) -> None:
    """Check that a call does not choose the version of a model by a label.

    The Open Inference Protocol has no version labels.
    """
    if model.label:
        raise InvalidSetting(
            f"label {model.label!r} is given, and the Open Inference Protocol has no labels. Give "
            f"a version, or use the API 'v1'."
        )


def datatype_of(array: Array, name: str) -> str:
    """Return the datatype of an input in the protocol, such as "FP32" for float32."""
    dtype = arrays.tensorflow_dtype(array, name)
    if dtype not in _NAMES:
        raise CodedError(
            f"input {name!r} is {dtype}, for which the Open Inference Protocol has no datatype. "
            f"Use the API 'v1' over gRPC.",
            Code.UNIMPLEMENTED,
        )
    return _NAMES[dtype]


def encode_raw(array: Array) -> bytes:
    """Return the elements of an array in the binary form of the protocol.

    Numbers are little-endian. Before each string is its length in bytes, a little-endian uint32.
    """
    if array.dtype.hasobject:
        return b"".join(_LENGTH.pack(len(text)) + text for text in array.ravel().tolist())
    return arrays.little_endian(array).tobytes()


def decode_raw(name: str, data: bytes | memoryview, datatype: str, shape: Sequence[int]) -> Array:
    """Convert the binary form of an output to an array.

    Args:
      data: the bytes of the elements, as `encode_raw` returns them.
      datatype: the datatype in the protocol, such as "FP32".

    Raises:
      InvalidReply: the datatype is unknown, or the data have another number of elements than the
        shape.
    """
    dtype = numpy_dtype(name, datatype)
    try:
        count = arrays.count_elements(shape)
    except ValueError as error:
        raise _wrong_size(name, shape) from error
    if dtype.hasobject:
        flat = _decode_strings(name, data)
    elif len(data) % dtype.itemsize:
        raise _wrong_size(name, shape)
    else:
        # np.frombuffer returns a read-only view of the message. Copy it, because users may change
        # the outputs that they receive.
        flat = np.frombuffer(data, dtype).copy()
    if len(flat) != count:
        raise _wrong_size(name, shape)
    try:
        return flat.reshape(tuple(shape))
    except ValueError as error:
        # The number of elements is right, but NumPy refuses the shape: one dimension is 0, and
        # another dimension is too large for NumPy.
        raise _wrong_size(name, shape) from error


def numpy_dtype(name: str, datatype: str) -> "np.dtype[Any]":
    """Return the NumPy dtype for a datatype of the protocol; object for BYTES.

    Args:
      datatype: the datatype in the protocol, such as "FP32".
    """
    if datatype not in _TENSORFLOW_NAMES:
        raise InvalidReply(
            f"output {name!r} has the datatype {datatype!r}, which the Open Inference Protocol "
            f"does not have. Request other outputs."
        )
    return arrays.numpy_dtype(_TENSORFLOW_NAMES[datatype])


def tensor_spec(name: str, datatype: str, shape: Sequence[int]) -> TensorSpec:
    """Convert the protocol's metadata of a tensor to a TensorSpec.

    Args:
      datatype: the datatype in the protocol, such as "FP32". tpuserve's servers write
        "COMPOSITE_FP32" for a sparse or composite tensor, which gets no name.
      shape: the shape; -1 for a dimension without a fixed size.
    """
    values = datatype.removeprefix("COMPOSITE_")
    dtype = _TENSORFLOW_NAMES.get(values, values.lower())
    name = name if values == datatype else ""
    return TensorSpec(name, dtype, tuple(None if size < 0 else size for size in shape))


def _decode_strings(name: str, data: bytes | memoryview) -> Array:
    strings: list[bytes] = []
    position = 0
    while position < len(data):
        start = position + _LENGTH.size
        if start > len(data):
            raise _truncation_error(name)
        (length,) = _LENGTH.unpack_from(data, position)
        position = start + length
        if position > len(data):
            raise _truncation_error(name)
        strings.append(bytes(data[start:position]))
    return arrays.object_array(strings)


def _truncation_error(name: str) -> InvalidReply:
    return InvalidReply(
        f"output {name!r} ends within a string. Look at the server that sent the answer."
    )


def _wrong_size(name: str, shape: Sequence[int]) -> InvalidReply:
    return InvalidReply(
        f"the data of output {name!r} do not fill its shape {list(shape[:64])}. Look at the server "
        f"that sent the answer."
    )
