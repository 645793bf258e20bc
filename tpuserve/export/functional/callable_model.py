"""Defines the common interface of the functions and Keras models that can be exported."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError

DEFAULT_OUTPUT = "output"


class CallableModel(ABC):
    """Wraps a user's function or model, so that it takes and returns dicts of named tensors.

    The names, called aliases, are those of the inputs and outputs in the SignatureDef.
    """

    places_itself = False

    def __init__(self, function: Any, title: str) -> None:
        self.function = function
        self.title = title

    def __call__(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> dict[str, Any]:
        """Call the model to build its ops in the default graph.

        Args:
          inputs: Name of an input in the signature → tensor.

        Returns:
          Name of an output in the signature → tensor.
        """
        returned = self._call(inputs, use_tpu=use_tpu)
        outputs = dict(self._name_outputs(returned))
        if not outputs:
            raise ExportError(f"{self.title} returned no output. Return at least one tensor.")
        return {alias: self._to_tensor(alias, value) for alias, value in outputs.items()}

    @abstractmethod
    def default_specs(self) -> Mapping[str, Any] | None:
        """Return the inputs that the model declares itself, for an export without `signatures`.

        Returns:
          None if the model declares no inputs.
        """

    @abstractmethod
    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Check that the model can be called with the inputs of a signature."""

    @abstractmethod
    def _call(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        """Call the function or model, and return its result unchanged."""

    def _name_outputs(self, returned: Any) -> Mapping[Any, Any]:
        return returned if isinstance(returned, Mapping) else {DEFAULT_OUTPUT: returned}

    def _to_tensor(self, alias: Any, value: Any) -> Any:
        if not isinstance(alias, str):
            raise ExportError(f"{self.title} named an output {alias!r}. Use a string as the name.")
        if isinstance(value, tf.Variable):
            value = tf.convert_to_tensor(value)
        if not isinstance(value, tf.Tensor):
            raise ExportError(
                f"{self.title} returned {type(value).__name__} as {alias!r}. Return a tensor or a "
                f"dict of name → tensor; convert sparse and ragged tensors to dense ones."
            )
        return value
