"""The methods that run a signature on examples: Classify and Regress."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from server.dataplane.results import Classification, Regression
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


Result = TypeVar("Result", Classification, Regression)

SelectOutputs: TypeAlias = Callable[[Signature, bool], list[str]]
"""Takes a signature, and whether to check its method_name; returns the aliases of outputs."""


@dataclass(frozen=True)
class ExampleMethod(Generic[Result]):
    """A method of the API that runs a signature on tf.train.Example messages.

    Attributes:
      select_outputs: takes a signature and whether to check its method_name, and returns the
        aliases of the outputs to compute; raises InvalidInput for a signature that the method
        cannot run.
      read_answer: takes the model's name, its version, the signature's name, the outputs (alias →
        array) and the number of examples, and returns a Classification or Regression; raises
        InvalidInput for outputs of an unexpected type or shape.
    """

    api: str
    select_outputs: SelectOutputs
    read_answer: Callable[[str, int, str, Mapping[str, Array], int], Result]

    def find_outputs(
        self, signatures: Mapping[str, Signature], name: str, check_method_name: bool
    ) -> list[str]:
        """Return the aliases of those outputs of a signature that the method returns to clients."""
        return self.select_outputs(find_signature(signatures, name), check_method_name)
