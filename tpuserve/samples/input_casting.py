"""Casts arrays of inputs to the dtypes of a signature."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import Signature, TensorSpec

Array = np.ndarray[Any, Any]


def cast_inputs(
    arrays: Mapping[str, Array], signature: Signature, origin: str
) -> tuple[dict[str, Array], list[str]]:
    """Cast arrays to the dtypes of a signature's inputs, and check their shapes.

    Floats are cast to floats of another width, and integers to integers of another width if all
    values fit.

    Args:
      origin: Where the arrays come from, such as the name of a file, for messages.

    Raises:
      InvalidTensor: An array has a dtype, a shape or a value that does not fit, or the arrays have
        different batch sizes.
    """
    notes: list[str] = []
    converted = {}
    for alias, array in arrays.items():
        spec = signature.inputs[alias]
        subject = f"{origin}: input {alias!r}"
        converted[alias] = _cast(array, spec, subject, notes)
        _check_shape(array, spec, subject)
    rows = {
        alias: array.shape[0] for alias, array in converted.items() if has_rows(signature, alias)
    }
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{alias} {count}" for alias, count in rows.items())
        raise InvalidTensor(
            f"{origin}: inputs have different numbers of rows: {counts}. Give all inputs the same "
            f"number."
        )
    return converted, notes


def has_rows(signature: Signature, alias: str) -> bool:
    """Return whether an input has a batch dimension: a first dimension of unknown size."""
    shape = signature.inputs[alias].shape
    return bool(shape) and shape[0] is None  # type: ignore[index]


def _cast(array: Array, spec: TensorSpec, subject: str, notes: list[str]) -> Array:
    if spec.dtype == "string":
        return _encode_strings(array, subject)
    target = tf.as_dtype(spec.dtype)
    try:
        dtype = tf.as_dtype(array.dtype)
    except TypeError:
        dtype = None
    if dtype == target:
        return array
    is_same_kind = dtype is not None and (
        (dtype.is_floating and target.is_floating) or (dtype.is_integer and target.is_integer)
    )
    if not is_same_kind:
        raise InvalidTensor(
            f"{subject} is {array.dtype}, and the signature takes {spec.dtype}. Convert the array, "
            f"for example with array.astype(...)."
        )
    with np.errstate(over="ignore"):
        converted = array.astype(target.as_numpy_dtype)
    if target.is_integer:
        fits = bool((converted == array).all())
    else:
        fits = bool((np.isfinite(converted) == np.isfinite(array)).all())
    if not fits:
        raise InvalidTensor(
            f"{subject} is {array.dtype} with values that do not fit into {spec.dtype}, which the "
            f"signature takes. Give smaller values."
        )
    notes.append(f"{subject} was converted from {array.dtype} to {spec.dtype}")
    return converted


def _encode_strings(array: Array, subject: str) -> Array:
    """Convert an array of text or bytes to an object array of bytes; text is encoded as UTF-8."""
    if array.dtype.kind not in "SUO":
        raise InvalidTensor(
            f"{subject} is {array.dtype}, and the signature takes strings. Give an array of "
            f"strings or bytes."
        )
    encoded = np.empty(array.shape, object)
    for position, value in np.ndenumerate(array):
        encoded[position] = value.encode() if isinstance(value, str) else bytes(value)
    return encoded


def _check_shape(array: Array, spec: TensorSpec, subject: str) -> None:
    if spec.shape is None:
        return
    fits = len(spec.shape) == array.ndim and all(
        expected is None or expected == size
        for expected, size in zip(spec.shape, array.shape, strict=False)
    )
    if not fits:
        shape = ", ".join(map(str, array.shape))
        raise InvalidTensor(
            f"{subject} has the shape [{shape}], and the signature takes {spec}. Give an array of "
            f"that shape."
        )
