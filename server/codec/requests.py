"""The body of a predict request → the arrays of a signature's inputs."""

from collections.abc import Mapping
from typing import TypeAlias

from server.codec.json_parser import Json, show, type_name
from server.codec.json_to_array import decode_value, is_base64
from server.codec.numeric_arrays import Numbers
from server.servables.servable import Array
from tpuserve.errors import InvalidInputNames, InvalidJson, InvalidTensor, TpuserveError
from tpuserve.saved_model.signature import Signature, TensorSpec

Inputs: TypeAlias = Mapping[str, TensorSpec]
Arrays: TypeAlias = dict[str, Array]


def signature_name(document: Json) -> str:
    """The signature that a request body names; empty where it names none.

    Raises:
      InvalidJson: the body is no object, or the name no string.
    """
    if type(document) is not dict:
        raise InvalidJson(f"JSON Value: {show(document)} Is not object")
    name = document.get("signature_name", "")
    if type(name) is not str:
        raise InvalidJson(
            f"JSON Value: {show(document)} not formatted correctly. 'signature_name' key must be a "
            f"string value."
        )
    return name


def is_rows(document: Json) -> bool:
    """Whether a body lists instances, one a row, and so wants its answer row by row."""
    return "instances" in document


def decode(document: Json, signature: Signature) -> Arrays:
    """The inputs in a request body, by alias.

    Args:
      document: an object with "instances" (row form) or "inputs" (columnar form).

    Raises:
      InvalidJson: neither key or both, or a form that no API has.
      InvalidInputNames: inputs missing, or not known to the signature.
      InvalidTensor: ragged lists, or values that are not of the input's type.
      UnsupportedType: JSON has no form for an input's type.
    """
    if "instances" in document and "inputs" in document:
        raise InvalidJson(
            f"JSON Value: {show(document)} Not formatted correctly. Expected one of 'inputs' and "
            f"'instances' keys, found both."
        )
    if "instances" in document:
        return _decode_rows(document["instances"], signature.inputs)
    if "inputs" in document:
        return _decode_columns(document["inputs"], signature.inputs)
    raise InvalidJson("Missing 'inputs' or 'instances' key")


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
    if type(rows) is Numbers:
        if len(inputs) == 1:
            ((name, spec),) = inputs.items()
            array = rows.read(spec.dtype)
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
    for position, row in enumerate(rows) if has_objects else ():
        if _is_named(row):
            raise _failed(position, InvalidJson("Expecting value/list but got object"))
    ((name, spec),) = inputs.items()
    return {name: _stack(rows, spec.dtype)}


def _decode_named_rows(rows: list[Json], inputs: Inputs) -> Arrays:
    names = inputs.keys()
    for position, row in enumerate(rows):
        if not _is_named(row):
            kind = "list" if type_name(row) == "Array" else "value"
            raise _failed(position, InvalidJson(f"Expecting object but got {kind}"))
        for name in sorted(row.keys() - names):
            raise InvalidInputNames(f"JSON object: does not have named input: {name}")
        if row.keys() != names:
            raise InvalidInputNames(
                f"Failed to process element: {position} of 'instances' list. JSON object: "
                f"{show(row)} keys must be equal to: {','.join(sorted(names))}"
            )
    return {
        name: _stack([row[name] for row in rows], spec.dtype, name) for name, spec in inputs.items()
    }


def _is_named(row: Json) -> bool:
    return type(row) is dict and not is_base64(row)


def _stack(rows: list[Json], dtype: str, key: str | None = None) -> Array:
    try:
        return decode_value(rows, dtype)
    except TpuserveError as error:
        # Decoded again one by one, to tell which row it is that fails.
        raise _first_failure(rows, dtype, key) or error from None


def _first_failure(rows: list[Json], dtype: str, key: str | None) -> TpuserveError | None:
    first: Array | None = None
    for position, row in enumerate(rows):
        try:
            array = decode_value(row, dtype)
        except TpuserveError as error:
            return _failed(position, error, key)
        first = array if first is None else first
        difference = _difference(first, array)
        if difference is not None:
            return _failed(position, difference, key)
    return None


def _difference(expected: Array, found: Array) -> InvalidTensor | None:
    if expected.size != found.size:
        return InvalidTensor(f"Expecting tensor size: {expected.size} but got: {found.size}")
    if expected.shape != found.shape:
        return InvalidTensor(
            f"Expecting shape {_show_shape(expected)} but got: {_show_shape(found)}"
        )
    return None


def _show_shape(array: Array) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"


def _failed(position: int, error: TpuserveError, key: str | None = None) -> InvalidTensor:
    of_key = "" if key is None else f"key: {key} "
    return InvalidTensor(
        f"Failed to process element: {position} {of_key}of 'instances' list. Error: "
        f"{error.code.name}: {error}"
    )
