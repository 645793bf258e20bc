"""Converts between arrays and the typed fields of the message InferTensorContents.

Source: the specification of the protocol, open_inference_grpc.proto.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from server.codec.open_inference.datatypes import Datatype
from server.codec.open_inference.raw_tensors import check_shape, format_shape
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor

# Name of a datatype → field of InferTensorContents that holds its elements. There is no field for
# FP16 and BF16.
_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
# Field of InferTensorContents → NumPy dtype of its elements, for the fields that several datatypes
# share: for example, the elements of INT8, INT16 and INT32 are all in `int_contents`.
_WIDE: dict[str, np.dtype[Any]] = {
    "int_contents": np.dtype(np.int32),
    "uint_contents": np.dtype(np.uint32),
}


def read_contents(
    name: str,
    contents: Any,
    datatype: Datatype,
    shape: Sequence[int],
    reserve: Callable[[int], object],
) -> Array:
    """Convert the message InferTensorContents of an input to an array.

    Args:
      datatype: the datatype of the input in the protocol, such as FP32.
      reserve: is called with a number of bytes before the array of this size is allocated; raises
        an error to refuse the request.

    Raises:
      InvalidTensor: the shape is invalid, the message has no field for the datatype, the field has
        more or fewer elements than the shape, or an element is out of the range of the datatype.
    """
    count = check_shape(name, shape)
    field = _FIELDS.get(datatype.name)
    if field is None:
        raise InvalidTensor(
            f"input {name!r} is {datatype.name}, which the field contents cannot hold. Send it in "
            f"raw_input_contents."
        )
    values = getattr(contents, field)
    if len(values) != count:
        raise InvalidTensor(
            f"input {name!r} has {len(values)} elements in {field}; its shape "
            f"{format_shape(shape)} has {count}."
        )
    reserve(count * max(8, datatype.dtype.itemsize))
    if datatype.dtype.hasobject:
        array = np.empty(count, object)
        array[:] = list(values)
        return array.reshape(shape)
    wide = np.fromiter(values, _WIDE.get(field, datatype.dtype), count)
    narrow = wide.astype(datatype.dtype, copy=False)
    if wide.dtype != narrow.dtype and not np.array_equal(wide, narrow):
        value = wide[wide != narrow][0]
        raise InvalidTensor(f"input {name!r} has the value {value}, which is no {datatype.name}.")
    return narrow.reshape(shape)


def write_contents(contents: Any, array: Array, datatype: Datatype) -> None:
    """Write an array to the message InferTensorContents of an output.

    Args:
      datatype: the datatype of the array in the protocol. The message must have a field for it, so
        `datatype.is_raw_only` must be False.
    """
    getattr(contents, _FIELDS[datatype.name]).extend(array.reshape(-1).tolist())
