"""Inputs from a file of arrays, as numpy.savez writes it."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpuserve.errors import InvalidInput, InvalidInputNames
from tpuserve.saved_model.signature import Signature

Array = np.ndarray[Any, Any]


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name.

    Raises:
      InvalidInput: no such file, no .npz file, or Python objects in it.
    """
    try:
        # Objects would be pickles, which run code of whoever wrote them.
        # Opened here, since numpy leaves a damaged file open.
        with path.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                return {name: file[name] for name in file.files}
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path}: {error.strerror or error}. Name a file that numpy.savez wrote."
        ) from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        advice = "Write strings as arrays of bytes or text, numpy.array([b'...'])."
        is_object = "allow_pickle" in str(error) and zipfile.is_zipfile(path)
        raise InvalidInput(
            f"{path} holds Python objects. {advice}"
            if is_object
            else f"{path} is no .npz file, or a damaged one. Write it by numpy.savez."
        ) from error
    raise InvalidInput(
        f"{path} holds one array without a name. Write it by numpy.savez(path, alias=array)."
    )


def assign_to_signatures(
    arrays: Mapping[str, Array], signatures: Mapping[str, Signature], where: str
) -> dict[str, dict[str, Array]]:
    """Which arrays are for which signature.

    A name is an input's alias, which is for every signature that has it, or
    "signature/alias", which is for that one and goes before the other.

    Returns:
      signature name → its inputs, for each signature of which all inputs are there.

    Raises:
      InvalidInputNames: an array that is of no use.
    """
    found: dict[str, dict[str, Array]] = {}
    used: set[str] = set()
    for name, signature in signatures.items():
        keys = {}
        for alias in signature.inputs:
            candidates = [key for key in (f"{name}/{alias}", alias) if key in arrays]
            if candidates:
                keys[alias] = candidates[0]
        if keys and keys.keys() == signature.inputs.keys():
            found[name] = {alias: arrays[key] for alias, key in keys.items()}
            used |= set(keys.values())
    for key in arrays:
        if key not in used:
            raise InvalidInputNames(_unused(key, arrays, signatures, where))
    return found


def _unused(
    key: str, arrays: Mapping[str, Array], signatures: Mapping[str, Signature], where: str
) -> str:
    for name, signature in signatures.items():
        if key in signature.inputs or key in {f"{name}/{each}" for each in signature.inputs}:
            missing = [
                each
                for each in signature.inputs
                if each not in arrays and f"{name}/{each}" not in arrays
            ]
            if missing:
                return (
                    f"{where} has {key!r}, and signature {name!r} takes {', '.join(missing)} too. "
                    f"Give all inputs of a signature."
                )
            return f"{where} has {key!r} and one that goes before it. Leave one out."
    takes = "; ".join(f"{name}: {', '.join(each.inputs)}" for name, each in signatures.items())
    return (
        f"{where} has {key!r}, which is no input of a signature; found {takes}. Name an array "
        f"after an input, or SIGNATURE/INPUT."
    )
