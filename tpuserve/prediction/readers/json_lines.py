"""Reads input files of a batch prediction that have a JSON value in each line.

The value has the inputs of one row, or is a line of a request log. A row is one entry along the
batch dimension.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import tensorflow as tf

from tpuserve.errors import InvalidInputNames, InvalidJson
from tpuserve.prediction.batch import InputBatch, Position
from tpuserve.prediction.log_line import is_log_line
from tpuserve.prediction.readers.dataset import iterate_lines
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature, find_signature

_BYTES_KEY = "b64"


def read_json_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
) -> Iterator[InputBatch]:
    """Yield the lines of a file in batches, converted to arrays.

    Args:
      batch_size: the number of lines of a batch, including empty lines, which are skipped.
    """
    signature = find_signature(signatures, signature_name)
    number = start.records + 1
    for lines in iterate_lines(path, batch_size, start):
        rows = {
            number + index: _parse_line(path, number + index, line, signature, signature_name)
            for index, line in enumerate(lines.tolist())
            if line.strip()
        }
        number += len(lines)
        if not rows:
            continue
        where = f"{path}, lines {min(rows)} to {max(rows)}"
        arrays, end = _to_arrays(path, rows, signature), Position(number - 1)
        yield InputBatch(where, arrays, (1,) * len(rows), signature_name, end=end)


def _parse_line(
    path: str, number: int, line: bytes, signature: Signature, signature_name: str
) -> dict[str, Any]:
    where = f"line {number} of {path}"
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(
            f"{where} is no JSON: {error}. Correct the file; the same command then continues with "
            f"it."
        ) from error
    if not isinstance(value, dict) or value.keys() == {_BYTES_KEY}:
        if len(signature.inputs) != 1:
            names = ", ".join(signature.inputs)
            raise InvalidJson(f"{where} is no object of the inputs. Give an object with: {names}.")
        return dict.fromkeys(signature.inputs, value)
    inputs: dict[str, Any] = value
    if is_log_line(value):
        inputs = _read_logged_inputs(where, value, signature_name)
    try:
        signature.check_inputs(inputs.keys())
    except InvalidInputNames as error:
        raise InvalidJson(f"{where}: {error}") from error
    return inputs


def _read_logged_inputs(where: str, line: Mapping[str, Any], signature_name: str) -> dict[str, Any]:
    if line["signature_name"] != signature_name:
        raise InvalidJson(
            f"{where} is of the signature {line['signature_name']!r}, and {signature_name!r} runs. "
            f"Give --signature-name, or remove the lines of other signatures."
        )
    inputs: dict[str, Any] = line["inputs"]
    if line["row"] is None or not isinstance(inputs, dict):
        raise InvalidJson(
            f"{where} is a request without rows. Log such requests in the format tfrecord."
        )
    return inputs


def _to_arrays(
    path: str, rows: Mapping[int, Mapping[str, Any]], signature: Signature
) -> dict[str, Array]:
    """Convert the lines of a batch to the input arrays: input alias → array [lines, ...]."""
    first_number, first = next(iter(rows.items()))
    for number, row in rows.items():
        if row.keys() != first.keys():
            raise InvalidJson(
                f"line {number} of {path} has other inputs than line {first_number}. Give each "
                f"line the same inputs."
            )
    arrays = {}
    for alias in first:
        dtype = signature.inputs[alias].dtype
        try:
            arrays[alias] = _to_array([row[alias] for row in rows.values()], dtype)
        except ValueError as error:
            number, reason = _find_invalid_line({n: row[alias] for n, row in rows.items()}, dtype)
            raise InvalidJson(
                f"line {number} of {path}: the input {alias!r} {reason}. Correct the file; the "
                f"same command then continues with it."
            ) from error
    return arrays


def _find_invalid_line(values: Mapping[int, Any], dtype: str) -> tuple[int, str]:
    """Find the line to blame if the values of an input cannot be converted to one array."""
    shape: tuple[int, ...] | None = None
    number = 0
    for number, value in values.items():
        try:
            array = _to_array([value], dtype)
        except ValueError as error:
            return number, str(error)
        if shape is not None and array.shape[1:] != shape:
            return number, f"has the shape {list(array.shape[1:])}, before it {list(shape)}"
        shape = array.shape[1:]
    return number, f"cannot be converted to {dtype}"


def _to_array(values: Sequence[Any], dtype: str) -> Array:
    """Convert the values of an input, one per line, to an array [lines, ...]."""
    if dtype == "string":
        strings = np.array(_to_bytes(values), dtype=object)
        if any(isinstance(element, list) for element in strings.flat):
            raise ValueError("is a list whose elements differ in length")
        return strings
    target: Any = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise ValueError("is a list whose elements differ in length") from error
    if target.kind != "b" and _has_boolean(values):
        # NumPy takes a boolean beside numbers for 0 or 1.
        raise ValueError(f"is not of {dtype}")
    kinds = {"b": "b", "i": "iu", "u": "iu", "c": "iuf"}.get(target.kind, "iuf")
    if array.size and array.dtype.kind not in kinds:
        # NumPy converts integers below and above 2**63 to floats, which rounds the large ones.
        # Keep the Python integers instead.
        array = np.array(values, object)
        if target.kind not in "iu" or any(type(number) is not int for number in array.flat):
            raise ValueError(f"is not of {dtype}")
    if target.kind in "iu" and array.size:
        limits = np.iinfo(target)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"is out of the range of {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(target)
    if target.kind not in "biu" and not np.array_equal(np.isfinite(converted), np.isfinite(array)):
        raise ValueError(f"is out of the range of {dtype}")
    return converted


def _has_boolean(value: Any) -> bool:
    if not isinstance(value, list):
        return isinstance(value, bool)
    types = set(map(type, value))
    return bool in types or (list in types and any(map(_has_boolean, value)))


def _to_bytes(value: Any) -> Any:
    """Convert each string in nested lists to bytes; a string is text or {"b64": "..."}."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_to_bytes(element) for element in value]
    if isinstance(value, dict) and isinstance(value.get(_BYTES_KEY), str):
        try:
            return base64.b64decode(value[_BYTES_KEY], validate=True)
        except binascii.Error as error:
            raise ValueError(f"is no base64: {error}") from error
    raise ValueError("is not of string")
