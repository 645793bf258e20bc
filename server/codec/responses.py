"""The outputs of a model → the body of a predict response."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from server.servable import Array
from tpuserve import dtypes
from tpuserve.errors import InvalidTensor

# Kinds of numpy: booleans, integers, floats and (for strings) objects.
_WRITABLE_KINDS = "biufO"


def encode_rows(outputs: Mapping[str, Array]) -> bytes:
    """{"predictions": [...]}: a value a row for one output, an object a row for several.

    Args:
      outputs: alias → [b, ...], one b for all.

    Raises:
      InvalidTensor: an output that is no batch, or of a type that JSON has no form for.
    """
    _check_batch(outputs)
    finite = _is_finite(outputs)
    columns = _columns(outputs, finite)
    if len(columns) == 1:
        (rows,) = columns.values()
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return _write({"predictions": rows}, finite)


def encode_columns(outputs: Mapping[str, Array]) -> bytes:
    """{"outputs": ...}: the value of one output, or an object of several; of any shapes.

    Raises:
      InvalidTensor: an output of a type that JSON has no form for.
    """
    finite = _is_finite(outputs)
    columns = _columns(outputs, finite)
    if len(columns) == 1:
        (column,) = columns.values()
        return _write({"outputs": column}, finite)
    return _write({"outputs": columns}, finite)


def _check_batch(outputs: Mapping[str, Array]) -> None:
    expected: int | None = None
    for name, array in outputs.items():
        if not array.ndim:
            raise InvalidTensor(f"Tensor name: {name} has no shape information ")
        expected = array.shape[0] if expected is None else expected
        if array.shape[0] != expected:
            raise InvalidTensor(
                f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} "
                f"expecting: {expected}"
            )


def _is_finite(outputs: Mapping[str, Array]) -> bool:
    return all(np.isfinite(array).all() for array in outputs.values() if array.dtype.kind == "f")


def _columns(outputs: Mapping[str, Array], finite: bool) -> dict[str, Any]:
    return {name: _column(name, array, finite) for name, array in outputs.items()}


def _column(name: str, array: Array, finite: bool) -> Any:
    if array.dtype.kind not in _WRITABLE_KINDS or array.dtype == np.float16:
        raise InvalidTensor(
            f"Failed to write JSON value for tensor type: {dtypes.runtime_name(array.dtype.name)}"
        )
    if array.dtype.kind == "O":
        return _strings(array, as_base64=name.endswith("_bytes"))
    if not finite:
        return _shortened(array).tolist()
    # orjson takes scalars as such, and arrays only in memory order.
    return array[()] if not array.ndim else np.ascontiguousarray(array)


def _strings(array: Array, as_base64: bool) -> Any:
    shown = np.empty(array.shape, object)
    shown.reshape(-1)[:] = [
        {"b64": base64.b64encode(each).decode()} if as_base64 else each.decode(errors="replace")
        for each in array.reshape(-1).tolist()
    ]
    return shown.tolist()


def _shortened(array: Array) -> Array:
    # A float32 of 0.1 is written so, and not as the double 0.10000000149011612.
    return array.astype(str).astype(np.float64) if array.dtype == np.float32 else array


def _write(body: Mapping[str, Any], finite: bool) -> bytes:
    if finite:
        return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    # orjson would write null for NaN and for Infinity.
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
