"""The methods that run a signature on examples: Classify and Regress."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from server.dataplane import examples
from server.dataplane.results import Classification, Regression
from server.servables.servable import Array
from tpuserve.saved_model.signature import Signature

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
        return self.select_outputs(examples.find_signature(signatures, name), check_method_name)
