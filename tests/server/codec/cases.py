"""Reads TensorFlow Serving's own test cases of its JSON conversion."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import Signature, TensorSpec

Case = Mapping[str, Any]

_FILE = Path(__file__).parent / "data" / "json_tensor_cases.json"
_NAMES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_INT32": "int32",
    "DT_STRING": "string",
    "DT_COMPLEX64": "complex64",
}


def cases(*kinds: str) -> list[Case]:
    """Return the cases of some kinds, or all cases."""
    all_cases: list[Case] = json.loads(_FILE.read_text())["cases"]
    return [case for case in all_cases if not kinds or case["kind"] in kinds]


def name_of(case: Case) -> str:
    return f"{case['id']}-{case['test'].partition('.')[2]}"


def body_of(case: Case) -> bytes:
    if "json" in case:
        return str(case["json"]).encode()
    return "".join(
        part if isinstance(part, str) else part["repeat"] * part["n"] for part in case["json_parts"]
    ).encode()


def signature_of(case: Case) -> Signature:
    return Signature(
        {
            name: TensorSpec(f"{name}:0", _NAMES[dtype], None)
            for name, dtype in case["tensorinfo"].items()
        },
        {},
    )


def array_of(tensor: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    name = _NAMES[tensor["dtype"]]
    assert name in dtypes.DTYPE_NAMES.values()
    values = tensor["values"]
    array: np.ndarray[Any, Any]
    if name == "string":
        array = np.empty(len(values), object)
        array[:] = [text.encode() for text in values]
    elif name == "complex64":
        array = np.array([complex(*values)], name).repeat(2)
    else:
        array = np.array(
            [float(value) if isinstance(value, str) else value for value in values], name
        )
    return array.reshape(tensor["shape"])


def parse_case(text: str, as_text: bool) -> Any:
    """Parse a document, optionally with its numbers as text."""
    if not as_text:
        return json.loads(text)
    keep: Callable[[str], Any] = str
    return json.loads(text, parse_float=keep, parse_int=keep, parse_constant=keep)
