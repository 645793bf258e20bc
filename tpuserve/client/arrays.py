"""Converts the inputs of a request to NumPy arrays, and dtypes between NumPy and TensorFlow."""

import math
import numbers
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tpuserve.errors import Code, CodedError, InvalidTensor
from tpuserve.saved_model.signature import Signature

Array: TypeAlias = np.ndarray[Any, Any]

# The largest number of dimensions that NumPy's arrays can have.
_MAX_DIMENSIONS = 64

_OBJECT: np.dtype[Any] = np.dtype(object)
_ARRAY_TYPES = (np.ndarray, np.generic)
# Returns the name of a dtype. It is cached because NumPy computes the name on each access.
_dtype_name = cache(lambda dtype: dtype.name)


def needs_signature(inputs: Mapping[str, Any]) -> bool:
    """Return whether any input is a list, a number or a string, and not an array.

    Such an input has no dtype: the dtype that the signature declares is used.
    """
    return not all([isinstance(value, _ARRAY_TYPES) for value in inputs.values()])


def convert_inputs(inputs: Mapping[str, Any], signature: Signature | None) -> dict[str, Array]:
    """Convert the inputs of a request to arrays.

    An array of numbers keeps its dtype. A list or a number gets the dtype that the signature
    declares.

    Args:
      inputs: alias → array, or nested lists of numbers or strings.
      signature: the signature to run, with the dtypes of its inputs; None if all inputs are arrays.

    Returns:
      Alias → array; strings as an object array of bytes.
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
    """Return the NumPy dtype for a TensorFlow dtype, such as "float32"; object for "string"."""
    dtype = _numpy_dtypes().get(name)
    if dtype is None:
        if name != "bfloat16":
            raise CodedError(
                f"a tensor has the type {name}, which no array holds. Request other outputs.",
                Code.UNIMPLEMENTED,
            )
        # NumPy has no bfloat16, but the package ml_dtypes has. Import it only for models that use
        # this type.
        import ml_dtypes

        dtype = _numpy_dtypes()[name] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def tensorflow_dtype(array: Array, name: str) -> str:
    """Return TensorFlow's name of the dtype of an array."""
    if array.dtype == _OBJECT:
        return "string"
    dtype_name: str = _dtype_name(array.dtype)
    if dtype_name != "bfloat16" and dtype_name not in _numpy_dtypes():
        raise CodedError(
            f"input {name!r} is an array of {dtype_name}. Convert it to a dtype of the signature.",
            Code.UNIMPLEMENTED,
        )
    return dtype_name


def object_array(strings: list[bytes]) -> Array:
    """Return strings as an object array of shape [number of strings].

    NumPy's dtype for byte strings, "S", would remove zero bytes from their ends.
    """
    array = np.empty(len(strings), object)
    array[:] = strings
    return array


def count_elements(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape that a server has sent.

    Raises:
      ValueError: the shape has a negative dimension, or more than NumPy's 64 dimensions.
    """
    # Check the number of dimensions first: the product of thousands of sizes would take long, so
    # that a malicious server could stall the client.
    if len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions")
    if any(size < 0 for size in shape):
        raise ValueError("a negative dimension")
    return math.prod(shape)


def little_endian(array: Array) -> Array:
    """Return an array as a contiguous array in little-endian byte order.

    TensorFlow Serving's API and the Open Inference Protocol send tensors in this order.
    """
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    # np.ascontiguousarray turns a scalar into an array of shape [1], so restore the shape.
    contiguous: Array = np.ascontiguousarray(array).reshape(array.shape)
    return contiguous


@cache
def _numpy_dtypes() -> "dict[str, np.dtype[Any]]":
    names = (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
    return {**{name: np.dtype(name) for name in names}, "string": _OBJECT}


def convert_to_array(value: Any, dtype: "np.dtype[Any]") -> Array:
    """Convert numbers to an array of a dtype; refuse numbers that an integer dtype cannot hold.

    NumPy's own conversion to integers drops fractions and, before version 2, wraps large numbers
    around.
    """
    array: Array = np.asarray(value)
    if array.dtype == dtype:
        return array
    if array.dtype.kind in "OUS":
        _check_numbers(value, dtype)
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"a complex number is no {dtype}")
    if dtype.kind not in "iu":
        return array.astype(dtype)
    if array.dtype.kind == "f" and dtype.itemsize == 8:
        # NumPy converts a list with integers below and above 2**63 to floats, which rounds the
        # large ones. Convert the Python integers one by one instead.
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


def _check_numbers(value: Any, dtype: "np.dtype[Any]") -> None:
    """Refuse text, None and other objects, which NumPy would convert: None to NaN, "7" to 7."""
    for element in np.array(value, object).flat:
        if not isinstance(element, numbers.Number):
            raise TypeError(f"{element!r} is no {dtype}")


def _convert(name: str, value: Any, dtype: str | None) -> Array:
    try:
        if dtype is None:
            array = np.asarray(value)
        elif dtype == "string":
            array = _to_objects(value)
        else:
            array = convert_to_array(value, numpy_dtype(dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidTensor(
            f"input {name!r} cannot be an array of {dtype or 'one dtype'}: {error}. Give nested "
            f"lists of equal lengths, or a NumPy array."
        ) from error
    if array.dtype == _OBJECT or array.dtype.kind in "US":
        return _to_bytes(name, value, array)
    return array


def _to_objects(value: Any) -> Array:
    array: Array = np.array(value, object)
    if any(isinstance(element, list | tuple | np.ndarray) for element in array.flat):
        raise ValueError("its lists have different lengths")
    return array


def _to_bytes(name: str, value: Any, array: Array) -> Array:
    # Convert lists to an object array: NumPy's dtype for byte strings would remove zero bytes from
    # their ends.
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
