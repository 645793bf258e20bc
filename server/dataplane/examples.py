"""Examples: the one input of signatures that classify or regress."""

from collections.abc import Mapping, Sequence

import numpy as np

from server.servables.servable import Array
from tpuserve.errors import InvalidInput
from tpuserve.saved_model.signature import Signature

ALIAS = "inputs"

_RUNTIME_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "object": "STRING"}


def encode(examples: Sequence[bytes]) -> Array:
    """The array [n] of strings that n serialized tf.train.Example are fed as.

    Raises:
      InvalidInput: there are none.
    """
    if not examples:
        raise InvalidInput("Input is empty.")
    array = np.empty(len(examples), object)
    array[:] = examples
    return array


def find(signatures: Mapping[str, Signature], name: str) -> Signature:
    """The signature of a name, for Classify and Regress.

    Raises:
      InvalidInput: there is none; Predict has another text and code for it.
    """
    if name not in signatures:
        raise InvalidInput(f"No signature was found with the name: {name}")
    return signatures[name]


def check_one_input(signature: Signature) -> None:
    """Refuses a signature that takes anything but one input.

    Raises:
      InvalidInput: it does.
    """
    if len(signature.inputs) != 1:
        raise InvalidInput("Expected one input Tensor.")


def show(signature: Signature) -> str:
    """The aliases of a signature, for messages about it."""
    inputs, outputs = ", ".join(sorted(signature.inputs)), ", ".join(sorted(signature.outputs))
    return f"inputs: {{{inputs}}} outputs: {{{outputs}}} method_name: {signature.method_name!r}"


def show_shape(array: Array) -> str:
    """A shape in the words of TensorFlow: "[2,3]"."""
    return f"[{','.join(map(str, array.shape))}]"


def show_type(array: Array) -> str:
    """An element type in the words of TensorFlow's protos: "DT_FLOAT"."""
    name = str(array.dtype)
    return "DT_" + _RUNTIME_NAMES.get(name, name.upper())
