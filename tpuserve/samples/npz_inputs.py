"""Reads the inputs of signatures from an .npz file, the format of numpy.savez."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpuserve.errors import InvalidInput, InvalidInputNames
from tpuserve.files import npz_file
from tpuserve.saved_model.signature import Signature

Array = np.ndarray[Any, Any]


def read_npz(path: Path) -> dict[str, Array]:
    """Read the arrays of an .npz file, by name."""
    try:
        arrays = npz_file.read_arrays(path)
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path}: {error.strerror or error}. Give a file that numpy.savez wrote."
        ) from error
    except ValueError as error:
        has_objects = "allow_pickle" in str(error) and zipfile.is_zipfile(path)
        raise InvalidInput(
            f"{path} holds Python objects. Save strings as arrays of bytes or text, such as "
            f"numpy.array([b'...'])."
            if has_objects
            else f"{path} is not an .npz file, or is damaged. Write it with numpy.savez."
        ) from error
    if arrays is None:
        raise InvalidInput(
            f"{path} holds one array without a name. Write it with numpy.savez(path, INPUT=array)."
        )
    return arrays


def assign_to_signatures(
    arrays: Mapping[str, Array], signatures: Mapping[str, Signature], origin: str
) -> dict[str, dict[str, Array]]:
    """Assign named arrays to the inputs of signatures.

    An array with the name "INPUT" is for every signature that has an input of this name.

    Args:
      arrays: Name in the .npz file → array of any shape and dtype.

    Returns:
      Signature name → its inputs (alias → array), for each signature whose inputs all have arrays.
      The shapes and dtypes of the arrays are not checked.
    """
    assigned: dict[str, dict[str, Array]] = {}
    used: set[str] = set()
    for name, signature in signatures.items():
        keys = {}
        for alias in signature.inputs:
            candidates = [key for key in (f"{name}/{alias}", alias) if key in arrays]
            if candidates:
                keys[alias] = candidates[0]
        if keys and keys.keys() == signature.inputs.keys():
            assigned[name] = {alias: arrays[key] for alias, key in keys.items()}
            used |= set(keys.values())
    for key in arrays:
        if key not in used:
            raise InvalidInputNames(_describe_unused(key, arrays, signatures, origin))
    return assigned


def _describe_unused(
    key: str, arrays: Mapping[str, Array], signatures: Mapping[str, Signature], origin: str
) -> str:
    """Return the error text for an array of an .npz file that is not passed to any signature."""
    for name, signature in signatures.items():
        if key in signature.inputs or key in {f"{name}/{alias}" for alias in signature.inputs}:
            missing = [
                alias
                for alias in signature.inputs
                if alias not in arrays and f"{name}/{alias}" not in arrays
            ]
            if missing:
                return (
                    f"{origin} has {key!r}, but not {', '.join(missing)}, which signature {name!r} "
                    f"takes too. Give all inputs of a signature."
                )
            return f"{origin} has {key!r} and a more specific array for that input. Remove one."
    inputs = "; ".join(
        f"{name}: {', '.join(signature.inputs)}" for name, signature in signatures.items()
    )
    return (
        f"{origin} has {key!r}, which is not an input of any signature; found {inputs}. Name each "
        f"array INPUT or SIGNATURE/INPUT."
    )
