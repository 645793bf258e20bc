"""Arrays that people bring → arrays that a signature takes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import Signature, TensorSpec

Array = np.ndarray[Any, Any]


def cast_inputs(
    arrays: Mapping[str, Array], signature: Signature, where: str
) -> tuple[dict[str, Array], list[str]]:
    """The arrays in the signature's types, and what had to be done to them.

    A float becomes a float of another width, and a whole number one of another width if it has
    room: numpy's own defaults, float64 and int64, are seldom what a model takes. Text becomes
    bytes, in UTF-8. Nothing else is converted.

    Args:
      arrays: alias → array, an input of the signature each.
      signature: what takes them.
      where: they are from, for messages.

    Raises:
      InvalidTensor: another type, another shape, or different numbers of rows.
    """
    notes: list[str] = []
    fitted = {}
    for alias, array in arrays.items():
        spec = signature.inputs[alias]
        subject = f"{where}: input {alias!r}"
        fitted[alias] = _in_type(array, spec, subject, notes)
        _check_shape(array, spec, subject)
    rows = {alias: array.shape[0] for alias, array in fitted.items() if has_rows(signature, alias)}
    if len(set(rows.values())) > 1:
        each = ", ".join(f"{alias} {count}" for alias, count in rows.items())
        raise InvalidTensor(
            f"{where}: inputs have different numbers of rows: {each}. Give as many."
        )
    return fitted, notes


def has_rows(signature: Signature, alias: str) -> bool:
    """Whether an input's first dimension is an open batch."""
    shape = signature.inputs[alias].shape
    return bool(shape) and shape[0] is None  # type: ignore[index]


def _in_type(array: Array, spec: TensorSpec, subject: str, notes: list[str]) -> Array:
    wanted = tf.as_dtype(spec.dtype)
    if spec.dtype == "string":
        return _strings(array, subject)
    try:
        found = tf.as_dtype(array.dtype)
    except TypeError:
        found = None
    if found == wanted:
        return array
    is_close = found is not None and (
        (found.is_floating and wanted.is_floating) or (found.is_integer and wanted.is_integer)
    )
    if not is_close:
        raise InvalidTensor(
            f"{subject} is {array.dtype}, and the signature takes {spec.dtype}. Convert it, as by "
            f"array.astype(...)."
        )
    with np.errstate(over="ignore"):
        converted = array.astype(wanted.as_numpy_dtype)
    if wanted.is_integer:
        is_kept = bool((converted == array).all())
    else:
        is_kept = bool((np.isfinite(converted) == np.isfinite(array)).all())
    if not is_kept:
        raise InvalidTensor(
            f"{subject} is {array.dtype} with values that {spec.dtype}, which the signature takes, "
            f"has no room for. Give smaller ones."
        )
    notes.append(f"{subject} was converted from {array.dtype} to {spec.dtype}")
    return converted


def _strings(array: Array, subject: str) -> Array:
    if array.dtype.kind not in "SUO":
        raise InvalidTensor(
            f"{subject} is {array.dtype}, and the signature takes strings. Give an array of "
            f"strings or bytes."
        )
    converted = np.empty(array.shape, object)
    for position, each in np.ndenumerate(array):
        converted[position] = each.encode() if isinstance(each, str) else bytes(each)
    return converted


def _check_shape(array: Array, spec: TensorSpec, subject: str) -> None:
    if spec.shape is None:
        return
    fits = len(spec.shape) == array.ndim and all(
        wanted is None or wanted == found
        for wanted, found in zip(spec.shape, array.shape, strict=False)
    )
    if not fits:
        shape = ", ".join(str(each) for each in array.shape)
        raise InvalidTensor(
            f"{subject} is of shape [{shape}], and the signature takes {spec}. Give it that shape."
        )
