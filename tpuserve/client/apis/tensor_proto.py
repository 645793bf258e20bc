"""Converts arrays to and from TensorProtos, without importing TensorFlow.

Source: tensorflow/core/framework/tensor.proto, and `Tensor::FromProto` in
tensorflow/core/framework/tensor.cc.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpuserve.client import arrays
from tpuserve.client.arrays import Array
from tpuserve.errors import InvalidReply
from tpuserve.proto import prediction_service_pb2 as pb
from tpuserve.saved_model import dtypes

_NUMBERS = {name: number for number, name in dtypes.DTYPE_NAMES.items()}
# TensorFlow's name of a dtype → the field of TensorProto that holds its values. The packed encoding
# of such a field is the little-endian bytes of the array.
_RAW_FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "bool": "bool_val",
}
_VARINT_FIELDS = {
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int_val"),
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "float16": "half_val",
    "bfloat16": "half_val",
}
# Field of TensorProto → the dtype in which its values are read, before they are converted to the
# dtype of the tensor. int_val and half_val hold int32 values also for tensors of other dtypes, such
# as int8 or float16. All other fields are read in the dtype of the tensor.
_FIELD_DTYPES: dict[str, Any] = {"int_val": np.int32, "half_val": np.int32}
# The largest number of bytes that repeated values (see `to_array`) may add to the arrays of a
# reply. A TensorProto with one value and a huge shape has a few bytes, but its array can need
# terabytes.
MAX_REPEATED_BYTES = 1 << 30


def write_array(proto: pb.TensorProto, array: Array, name: str) -> None:
    """Write the dtype, shape and elements of an array to an empty TensorProto.

    Args:
      array: the array; strings are an object array of bytes.
    """
    dtype = arrays.tensorflow_dtype(array, name)
    proto.dtype = _NUMBERS[dtype]
    dimensions = proto.tensor_shape.dim
    # Set the field tensor_shape even if the array is a scalar, because TensorFlow writes the field
    # for scalars too.
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        dimensions.add(size=size)
    if dtype == "string":
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.tensor_content = arrays.little_endian(array).tobytes()


def to_arrays(protos: Mapping[str, pb.TensorProto]) -> dict[str, Array]:
    """Convert the TensorProtos of a reply to arrays; strings to object arrays of bytes.

    Raises:
      InvalidReply: the values of a TensorProto do not fit its shape, or repeated values (see
        `to_array`) make the arrays together too large.
    """
    result: dict[str, Array] = {}
    remaining = MAX_REPEATED_BYTES
    for name, proto in protos.items():
        array = result[name] = to_array(proto, name, remaining)
        remaining -= max(0, array.nbytes - proto.ByteSize())
    return result


def to_array(
    proto: pb.TensorProto, name: str, max_repeated_bytes: int = MAX_REPEATED_BYTES
) -> Array:
    """Convert a TensorProto to an array; strings to an object array of bytes.

    As in TensorFlow, a typed field such as float_val can have fewer values than the shape has
    elements.

    Args:
      max_repeated_bytes: the largest size, in bytes, of an array with repeated values.

    Raises:
      InvalidReply: the values of the TensorProto do not fit its shape, or the repeated values make
        the array too large.
    """
    dtype_name = dtypes.dtype_name(proto.dtype)
    dtype = arrays.numpy_dtype(dtype_name)
    shape = tuple(dimension.size for dimension in proto.tensor_shape.dim)
    try:
        count = arrays.count_elements(shape)
        flat = _flat_values(proto, dtype_name, dtype)
        if len(flat) < count and count * dtype.itemsize > max_repeated_bytes:
            raise ValueError(
                f"{len(flat)} values for {count} elements, and at most {MAX_REPEATED_BYTES} bytes "
                f"of a reply may repeat"
            )
        return _fill(flat, count, dtype).reshape(shape)
    except ValueError as error:
        raise InvalidReply(
            f"the values of tensor {name!r} do not fill the shape {list(shape[:64])}: {error}. "
            f"Look at the server that sent it."
        ) from error


def _flat_values(proto: pb.TensorProto, dtype_name: str, dtype: "np.dtype[Any]") -> Array:
    if dtype_name == "string":
        return arrays.object_array(list(proto.string_val))
    if proto.tensor_content:
        return np.frombuffer(proto.tensor_content, dtype)
    if dtype_name in _RAW_FIELDS:
        chunks = getattr(proto, _RAW_FIELDS[dtype_name])
        return np.frombuffer(chunks[0] if len(chunks) == 1 else b"".join(chunks), dtype)
    field = _VARINT_FIELDS[dtype_name]
    values = getattr(proto, field)
    flat = np.fromiter(values, _FIELD_DTYPES.get(field, dtype), len(values))
    if field == "half_val":
        return flat.astype(np.uint16).view(dtype)
    return flat.astype(dtype, copy=False)


def _fill(flat: Array, count: int, dtype: "np.dtype[Any]") -> Array:
    if len(flat) == count:
        # A view of the bytes of a message is read-only. Copy it, because users may change the
        # outputs that they receive.
        return flat if flat.flags.writeable else flat.copy()
    if len(flat) > count:
        raise ValueError(f"{len(flat)} values for {count} elements")
    if not len(flat):
        return np.full(count, b"", object) if dtype.hasobject else np.zeros(count, dtype)
    filled = np.full(count, flat[-1], dtype)
    filled[: len(flat)] = flat
    return filled
