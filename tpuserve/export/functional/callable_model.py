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

    Attributes:
      function: The function or model from the user.
      title: Name of the function or model in messages.
      places_itself: Whether the function has a parameter `use_tpu`, and itself chooses which of
        its ops run on the TPU.
    """

    places_itself = False

    def __init__(self, function: Any, title: str) -> None:
        """Wrap a function or model of the user.

        Args:
          function: The function or model from the user.
          title: Name of the function or model in messages.
        """
        self.function = function
        self.title = title

    def __call__(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> dict[str, Any]:
        """Call the model to build its ops in the default graph.

        Args:
          inputs: Name of an input in the signature → tensor.
          use_tpu: Whether the TPU metagraph is being built, and not the CPU metagraph.

        Returns:
          Name of an output in the signature → tensor.

        Raises:
          ExportError: There is no output, or an output is not a tensor.
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
          Name of the input → tf.TensorSpec; None if the model declares no inputs.
        """

    @abstractmethod
    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Check that the model can be called with the inputs of a signature.

        Args:
          signature_name: Name of the signature, for the error message.
          aliases: Names of the inputs in the signature.

        Raises:
          InvalidSetting: The model has inputs of other names.
        """

    @abstractmethod
    def _call(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        """Call the function or model, and return its result unchanged."""

    def _name_outputs(self, returned: Any) -> Mapping[Any, Any]:
        """Return the outputs of the model by the names that they get in the signature.

        Args:
          returned: The result of `_call`.

        Returns:
          Name → output, which can still be of an invalid type.
        """
        return returned if isinstance(returned, Mapping) else {DEFAULT_OUTPUT: returned}

    def _to_tensor(self, alias: Any, value: Any) -> Any:
        """Return an output of the model as a tensor.

        Args:
          alias: Name of the output in the signature.
          value: The output.

        Raises:
          ExportError: `alias` is not a string, or `value` is neither a tensor nor a variable.
        """
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
