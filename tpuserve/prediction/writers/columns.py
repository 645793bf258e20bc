"""Converts outputs to the dtypes that JSON and Parquet have."""

import numpy as np

from tpuserve.runtime.loaded_model import Array

_STANDARD_KINDS = "biufc"


def to_standard_dtype(array: Array) -> Array:
    """Return an array of a dtype of NumPy: bfloat16 and smaller floats become float32.

    Integers of less than a byte become int8 or uint8.
    """
    if array.dtype.kind in _STANDARD_KINDS and array.dtype.isbuiltin == 1:
        return np.ascontiguousarray(array)
    name = array.dtype.name
    if name.startswith(("int", "uint")):
        return array.astype(np.uint8 if name.startswith("u") else np.int8)
    return array.astype(np.float32)
