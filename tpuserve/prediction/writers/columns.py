"""Converts outputs to dtypes that JSON and Parquet files can hold."""

import base64
from typing import Any

import numpy as np

from tpuserve.runtime.loaded_model import Array

_STANDARD_KINDS = "biufc"


def to_standard_dtype(array: Array) -> Array:
    """Convert an array with a dtype of the package ml_dtypes to a dtype of NumPy itself.

    Floats such as bfloat16 and float8 become float32. Integers such as int4 become int8 or uint8.
    Other arrays are returned unchanged.
    """
    if array.dtype.kind in _STANDARD_KINDS and array.dtype.isbuiltin == 1:
        return np.ascontiguousarray(array)
    name = array.dtype.name
    if name.startswith(("int", "uint")):
        return array.astype(np.uint8 if name.startswith("u") else np.int8)
    return array.astype(np.float32)


def to_json_values(array: Array) -> Any:
    """Convert an array to lists or to an array that orjson encodes; not complex numbers.

    Strings become text, or {"b64": "..."} if they are not UTF-8.
    """
    if array.dtype.hasobject:
        return _to_text(array.tolist())
    return to_standard_dtype(array)


def _to_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_text(element) for element in value]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
