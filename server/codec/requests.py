"""Decodes the JSON body of a predict request to the input arrays of a signature."""

import sys
from collections.abc import Mapping, Set
from itertools import compress, count, repeat
from operator import is_, is_not, itemgetter, ne
from typing import TypeAlias

from server.codec.json_parser import Json, format_for_error, json_type_name
from server.codec.json_to_array import decode_value, find_first, is_base64
from server.codec.numeric_arrays import RawNumericArray
from server.servables.servable import Array
from tpuserve.errors import InvalidInputNames, InvalidJson, InvalidTensor, TpuserveError
from tpuserve.saved_model.signature import Signature, TensorSpec

Inputs: TypeAlias = Mapping[str, TensorSpec]
Arrays: TypeAlias = dict[str, Array]

# The search for an invalid row of a request narrows down to this number of rows by bisection, and
# then decodes these rows one by one.
_FEW_ROWS = 16


def get_signature_name(document: Json) -> str:
    """Return the signature name of a request, or "" if the request has none."""
    if type(document) is not dict:
        raise InvalidJson(f"JSON Value: {format_for_error(document)} Is not object")
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise InvalidJson(
            f"JSON Value: {format_for_error(document)} not formatted correctly. "
            f"'signature_name' key must be a string value."
        )
    return name


def is_row_format(document: Json) -> bool:
    """Return whether a request is in row format ("instances") and not columnar ("inputs")."""
    return "instances" in document


def decode_inputs(document: Json, signature: Signature) -> Arrays:
    """Decode the inputs of a predict request.

    Raises:
      InvalidJson: The object has neither of the two keys, or both, or the value of the key is
        malformed.
      InvalidTensor: The lists are ragged, or a value is not of the input's type.
    """
    if "instances" in document and "inputs" in document:
        raise InvalidJson(
            f"JSON Value: {format_for_error(document)} Not formatted correctly. "
            f"Expected one of 'inputs' and 'instances' keys, found both."
        )
    if "instances" in document:
        return _decode_rows(document["instances"], signature.inputs)
    if "inputs" in document:
        return _decode_columns(document["inputs"], signature.inputs)
    raise InvalidJson("Missing 'inputs' or 'instances' key")


def count_bytes(arrays: Mapping[str, Array]) -> int:
    """Return the memory of arrays in bytes, including the memory of the strings in them.

    Args:
      arrays: name → array of any shape and dtype. Strings are object arrays of bytes.
    """
    total = sum(array.nbytes for array in arrays.values())
    for array in arrays.values():
        if array.dtype == object:
            total += sum(map(sys.getsizeof, array.ravel().tolist()))
    return total


def _decode_columns(value: Json, inputs: Inputs) -> Arrays:
    if type(value) is dict and not is_base64(value):
        for name in sorted(inputs.keys() - value.keys()):
            raise InvalidInputNames(f"Missing named input: {name} in 'inputs' object.")
        return {name: decode_value(value[name], spec.dtype) for name, spec in inputs.items()}
    if len(inputs) != 1:
        raise InvalidJson(
            "inputs is a plain value/list, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map"
        )
    return {name: decode_value(value, spec.dtype) for name, spec in inputs.items()}


def _decode_rows(rows: Json, inputs: Inputs) -> Arrays:
    if type(rows) is RawNumericArray:
        if len(inputs) == 1:
            ((name, spec),) = inputs.items()
            array = rows.to_array(spec.dtype)
            if array is not None:
                return {name: array}
        rows = rows.tolist()
    if type(rows) is not list:
        raise InvalidJson("Expecting 'instances' to be an list/array")
    if not rows:
        raise InvalidJson("No values in 'instances' array")
    has_objects = dict in set(map(type, rows))
    if has_objects and _is_named(rows[0]):
        return _decode_named_rows(rows, inputs)
    if len(inputs) != 1:
        raise InvalidJson(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    objects = map(is_, map(type, rows), repeat(dict)) if has_objects else ()
    for position in compress(count(), objects):
        if _is_named(rows[position]):
            raise _row_error(position, InvalidJson("Expecting value/list but got object"))
    ((name, spec),) = inputs.items()
    return {name: _decode_stacked(rows, spec.dtype)}


def _decode_named_rows(rows: list[Json], inputs: Inputs) -> Arrays:
    names = inputs.keys()
    for position in range(_count_rows_with_names(rows, names), len(rows)):
        row = rows[position]
        if type(row) is dict and row.keys() == names and not is_base64(row):
            continue
        if not _is_named(row):
            kind = "list" if json_type_name(row) == "Array" else "value"
            raise _row_error(position, InvalidJson(f"Expecting object but got {kind}"))
        for name in sorted(row.keys() - names):
            raise InvalidInputNames(f"JSON object: does not have named input: {name}")
        raise InvalidInputNames(
            f"Failed to process element: {position} of 'instances' list. JSON object: "
            f"{format_for_error(row)} keys must be equal to: {','.join(sorted(names))}"
        )
    return {
        name: _decode_stacked(list(map(itemgetter(name), rows)), spec.dtype, name)
        for name, spec in inputs.items()
    }


def _count_rows_with_names(rows: list[Json], names: Set[str]) -> int:
    """Return a number n such that the first n rows are JSON objects whose keys are `names`."""
    if names == {"b64"} or rows[0].keys() != names:
        return 0
    objects = rows[: find_first(map(is_not, map(type, rows), repeat(dict)))]
    start = find_first(map(ne, map(dict.keys, objects), repeat(names)))
    return len(objects) if start is None else start


def _is_named(row: Json) -> bool:
    return type(row) is dict and not is_base64(row)


def _decode_stacked(rows: list[Json], dtype: str, key: str | None = None) -> Array:
    try:
        return decode_value(rows, dtype, explains_ragged=False)
    except TpuserveError:
        # Find the first invalid row, so that the error names this row as TensorFlow Serving does.
        row_error = _find_row_error(rows, dtype, key)
        if row_error is not None:
            raise row_error from None
        raise


def _find_row_error(rows: list[Json], dtype: str, key: str | None) -> TpuserveError | None:
    """Return the error of the first row that is invalid or whose shape differs from row 0."""
    start, end = 0, len(rows)
    # Bisect, because decoding many rows at once takes a fraction of the time of decoding them one
    # by one: decode the first half of the remaining rows, and continue with the half that
    # has the first error. Row 0 is decoded with each half, because all rows must have its shape.
    while end - start > _FEW_ROWS:
        middle = (start + end) // 2
        try:
            decode_value([rows[0], *rows[start:middle]], dtype, explains_ragged=False)
        except TpuserveError:
            end = middle
        else:
            start = middle
    # Decoding several rows together adds a dimension. If rows already have the largest number of
    # dimensions, this fails even for valid rows, and the bisection may end at rows without an
    # error. In this case, check all rows.
    error = _check_rows(rows, start, end, dtype, key)
    return error or _check_rows(rows, 0, len(rows), dtype, key)


def _check_rows(
    rows: list[Json], start: int, end: int, dtype: str, key: str | None
) -> TpuserveError | None:
    first: Array | None = None
    for position in (0, *range(start, end)):
        try:
            array = decode_value(rows[position], dtype)
        except TpuserveError as error:
            return _row_error(position, error, key)
        first = array if first is None else first
        difference = _compare_shapes(first, array)
        if difference is not None:
            return _row_error(position, difference, key)
    return None


def _compare_shapes(expected: Array, actual: Array) -> InvalidTensor | None:
    if expected.size != actual.size:
        return InvalidTensor(f"Expecting tensor size: {expected.size} but got: {actual.size}")
    if expected.shape != actual.shape:
        return InvalidTensor(
            f"Expecting shape {_format_shape(expected)} but got: {_format_shape(actual)}"
        )
    return None


def _format_shape(array: Array) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"


def _row_error(position: int, error: TpuserveError, key: str | None = None) -> InvalidTensor:
    key_text = "" if key is None else f"key: {key} "
    return InvalidTensor(
        f"Failed to process element: {position} {key_text}of 'instances' list. Error: "
        f"{error.code.name}: {error}"
    )
