"""Converts the values of inputs to arrays, and the dtypes between NumPy and TensorFlow."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tpuserve.errors import InvalidTensor, UnsupportedType
from tpuserve.saved_model.signature import Signature

Array: TypeAlias = np.ndarray[Any, Any]

# NumPy's arrays have at most 64 dimensions.
_MAX_DIMENSIONS = 64

_OBJECT: np.dtype[Any] = np.dtype(object)
_ARRAY_TYPES = (np.ndarray, np.generic)
# NumPy computes the name of a dtype on each access.
_dtype_name = cache(lambda dtype: dtype.name)


def needs_signature(inputs: Mapping[str, Any]) -> bool:
    """Return whether an input is a list or a Python value, whose dtype only the signature says."""
    return not all([isinstance(value, _ARRAY_TYPES) for value in inputs.values()])


def convert_inputs(inputs: Mapping[str, Any], signature: Signature | None) -> dict[str, Array]:
    """Convert the inputs of a request to arrays.

    An array keeps its dtype. Lists and numbers get the dtype that the signature declares.

    Args:
      inputs: alias → array, or nested lists of numbers or strings.
      signature: the signature that runs; None if all inputs are arrays.

    Returns:
      Alias → array; strings as an object array of bytes.

    Raises:
      InvalidTensor: a value cannot be converted to an array of its dtype.
    """
    return {
        name: _convert(name, value, signature.inputs[name].dtype)
        if signature is not None
        and name in signature.inputs
        and not isinstance(value, _ARRAY_TYPES)
        else _convert(name, value, None)
        for name, value in inputs.items()
    }


def numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the NumPy dtype of a TensorFlow dtype, such as "float32"; object for "string".

    Raises:
      UnsupportedType: no array has such elements.
    """
    dtype = _numpy_dtypes().get(name)
    if dtype is None:
        if name != "bfloat16":
            raise UnsupportedType(
                f"a tensor has the type {name}, which no array holds. Request other outputs."
            )
        # NumPy has no bfloat16; the package is only imported for models that use this type.
        import ml_dtypes

        dtype = _numpy_dtypes()[name] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def tensorflow_dtype(array: Array, name: str) -> str:
    """Return TensorFlow's name of the dtype of an array.

    Args:
      array: the array; an object array has strings.
      name: the name of the input, for the text of an error.

    Raises:
      UnsupportedType: TensorFlow has no such dtype.
    """
    if array.dtype == _OBJECT:
        return "string"
    dtype_name: str = _dtype_name(array.dtype)
    if dtype_name != "bfloat16" and dtype_name not in _numpy_dtypes():
        raise UnsupportedType(
            f"input {name!r} is an array of {dtype_name}. Convert it to a dtype of the signature."
        )
    return dtype_name


def object_array(strings: list[bytes]) -> Array:
    """Return strings as an object array of shape [n].

    An array of fixed-width strings would strip zero bytes from their ends.
    """
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


def count_elements(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape that a server has sent.

    Raises:
      ValueError: no array has such a shape.
    """
    # Check before the product, whose time grows with the square of the number of dimensions.
    if len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions")
    if any(size < 0 for size in shape):
        raise ValueError("a negative dimension")
    return math.prod(shape)


def little_endian(array: Array) -> Array:
    """Return a contiguous array in little-endian byte order, in which both APIs send tensors."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    # NumPy makes a scalar an array of shape [1].
    contiguous: Array = np.ascontiguousarray(array).reshape(array.shape)
    return contiguous


@cache
def _numpy_dtypes() -> "dict[str, np.dtype[Any]]":
    names = (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
    return {**{name: np.dtype(name) for name in names}, "string": _OBJECT}


def array_of(value: Any, dtype: "np.dtype[Any]") -> Array:
    """Return numbers as an array of a dtype, all of whose values are those of the numbers.

    NumPy's conversion to integers rounds fractions and, before version 2, wraps numbers around.

    Args:
      value: nested lists or an array.
      dtype: the dtype of the result, which may round floats.

    Raises:
      OverflowError: a number is none of an integer dtype.
      TypeError, ValueError: the value is no array of numbers.
    """
    array: Array = np.asarray(value, None if dtype.kind in "iu" else dtype)
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "f" and dtype.itemsize == 8:
        # NumPy makes floats of small integers beside integers of 64 bits, which rounds the latter.
        array = np.asarray(value, object)
        if dtype.kind == "u" and np.any(array < 0):
            raise OverflowError(f"{array.min()} is no {dtype}")
    elif array.dtype.kind not in "iuf":
        return np.asarray(array, dtype)
    with np.errstate(invalid="ignore"):
        integers: Array = array.astype(dtype)
    if not np.array_equal(integers, array):
        raise OverflowError(f"{array[integers != array].flat[0]} is no {dtype}")
    return integers


def _convert(name: str, value: Any, dtype: str | None) -> Array:
    try:
        if dtype is None or dtype == "string":
            array = np.asarray(value)
        else:
            array = array_of(value, numpy_dtype(dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidTensor(
            f"input {name!r} cannot be an array of {dtype or 'one dtype'}: {error}. Give nested "
            f"lists of equal lengths, or a NumPy array."
        ) from error
    if array.dtype == _OBJECT or array.dtype.kind in "US":
        return _to_bytes(name, value, array)
    return array


def _to_bytes(name: str, value: Any, array: Array) -> Array:
    # NumPy strips zero bytes from the end of byte strings: take the strings from an object array.
    objects = array if isinstance(value, np.ndarray) else np.array(value, object)
    strings = [
        text.encode() if isinstance(text, str) else text for text in objects.ravel().tolist()
    ]
    if not all(isinstance(text, bytes) for text in strings):
        raise InvalidTensor(
            f"input {name!r} has values that are neither numbers nor strings. Give nested lists of "
            f"equal lengths, or a NumPy array."
        )
    return object_array(strings).reshape(objects.shape)
