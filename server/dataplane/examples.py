"""Functions for Classify and Regress, whose signatures have one input: serialised examples."""

from collections.abc import Mapping, Sequence

import numpy as np

from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

ALIAS = "inputs"

_RUNTIME_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "object": "STRING"}


def encode(examples: Sequence[bytes]) -> Array:
    """Pack n serialised tf.train.Example messages into an object array of bytes of shape [n]."""
    if not examples:
        raise InvalidInput("Input is empty.")
    array = np.empty(len(examples), object)
    array[:] = examples
    return array


def find_signature(signatures: Mapping[str, Signature], name: str) -> Signature:
    """Return the signature with the given name, for Classify and Regress."""
    if name not in signatures:
        raise InvalidInput(f"No signature was found with the name: {name}")
    return signatures[name]


def check_one_input(signature: Signature) -> None:
    """Check that a signature has exactly one input."""
    if len(signature.inputs) != 1:
        raise InvalidInput("Expected one input Tensor.")


def format_signature(signature: Signature) -> str:
    """Format a signature's input and output aliases and its method_name for an error message."""
    inputs, outputs = ", ".join(sorted(signature.inputs)), ", ".join(sorted(signature.outputs))
    return f"inputs: {{{inputs}}} outputs: {{{outputs}}} method_name: {signature.method_name!r}"


def format_shape(array: Array) -> str:
    """Format an array's shape for an error message, as TensorFlow does: "[2,3]"."""
    return f"[{','.join(map(str, array.shape))}]"


def format_type(array: Array) -> str:
    """Format an array's dtype for an error message, as TensorFlow does: "DT_FLOAT" for float32."""
    name = str(array.dtype)
    return "DT_" + _RUNTIME_NAMES.get(name, name.upper())
