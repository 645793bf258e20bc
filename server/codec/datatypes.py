"""The datatypes of the Open Inference Protocol, and their names in TensorFlow and NumPy.

Source: the section "Tensor Data Types" of the protocol's specification. BF16 is an extension of
Triton, and its source is Triton's documentation.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tpuserve.errors import Code, CodedError, InvalidTensor
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import TensorSpec


@dataclass(frozen=True)
class Datatype:
    """A datatype of the Open Inference Protocol.

    Attributes:
      name: the protocol's name, such as "FP32".
      tensorflow_name: TensorFlow's name, such as "float32".
      dtype: the NumPy dtype of an array of such elements; object for strings.
      is_raw_only: whether tensors of the type can only be sent in binary form, because neither JSON
        nor the typed fields of the gRPC messages can hold the type.
    """

    name: str
    tensorflow_name: str
    dtype: np.dtype[Any]
    is_raw_only: bool = False


_DATATYPES = (
    Datatype("BOOL", "bool", np.dtype(np.bool_)),
    Datatype("UINT8", "uint8", np.dtype(np.uint8)),
    Datatype("UINT16", "uint16", np.dtype(np.uint16)),
    Datatype("UINT32", "uint32", np.dtype(np.uint32)),
    Datatype("UINT64", "uint64", np.dtype(np.uint64)),
    Datatype("INT8", "int8", np.dtype(np.int8)),
    Datatype("INT16", "int16", np.dtype(np.int16)),
    Datatype("INT32", "int32", np.dtype(np.int32)),
    Datatype("INT64", "int64", np.dtype(np.int64)),
    Datatype("FP16", "float16", np.dtype(np.float16), is_raw_only=True),
    Datatype("BF16", "bfloat16", np.dtype(ml_dtypes.bfloat16), is_raw_only=True),
    Datatype("FP32", "float32", np.dtype(np.float32)),
    Datatype("FP64", "float64", np.dtype(np.float64)),
    Datatype("BYTES", "string", np.dtype(object)),
)
_BY_NAME = {datatype.name: datatype for datatype in _DATATYPES}
_BY_TENSORFLOW_NAME = {datatype.tensorflow_name: datatype for datatype in _DATATYPES}
_BY_DTYPE = {datatype.dtype: datatype for datatype in _DATATYPES}


def find_datatype(name: str, tensor: str) -> Datatype:
    """Return the datatype that the protocol calls by a name.

    Args:
      name: the protocol's name of the datatype, such as "FP32".
    """
    datatype = _BY_NAME.get(name)
    if datatype is None:
        raise InvalidTensor(
            f"input {tensor!r} has the datatype {name[:32]!r}. Send one of {', '.join(_BY_NAME)}."
        )
    return datatype


def datatype_of_array(array: np.ndarray[Any, np.dtype[Any]], tensor: str) -> Datatype:
    """Return the datatype of an output array's elements."""
    datatype = _BY_DTYPE.get(array.dtype)
    if datatype is None:
        raise CodedError(
            f"output {tensor!r} has the type {dtypes.runtime_name(array.dtype.name)}, for which "
            f"the Open Inference Protocol has no datatype. Request other outputs.",
            Code.UNIMPLEMENTED,
        )
    return datatype


def datatype_name(spec: TensorSpec) -> str:
    """Return the protocol's name of the dtype of a tensor: "FP32" for "float32"."""
    datatype = _BY_TENSORFLOW_NAME.get(spec.dtype)
    name = spec.dtype.upper() if datatype is None else datatype.name
    return name if spec.is_dense else f"COMPOSITE_{name}"
