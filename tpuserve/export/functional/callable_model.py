"""The common interface of functions and Keras models that are exported."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError

DEFAULT_OUTPUT = "output"


class CallableModel(ABC):
    """A model that is called with inputs by alias and returns outputs by alias.

    Attributes:
      function: The function or model from the user.
      title: Name of the function or model in messages.
      places_itself: Whether the function takes `use_tpu` and puts its own parts on the TPU.
    """

    places_itself = False

    def __init__(self, function: Any, title: str) -> None:
        """Wrap a function or model so that it is called by alias.

        Args:
          function: The function or model from the user.
          title: Name of the function or model in messages.
        """
        self.function = function
        self.title = title

    def __call__(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> dict[str, Any]:
        """Call the model.

        Args:
          inputs: Alias → tensor.
          use_tpu: Whether the TPU metagraph is being built.

        Returns:
          Alias → tensor.

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
        """Return alias → tf.TensorSpec of the inputs that the model declares; None without any."""

    @abstractmethod
    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Check that the model can be called with the inputs of a signature.

        Args:
          signature_name: Name of the signature, for the message.
          aliases: Keys of the inputs in the signature.

        Raises:
          InvalidSetting: The model takes other inputs.
        """

    @abstractmethod
    def _call(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any:
        """Call the function or model, and return its result unchanged."""

    def _name_outputs(self, returned: Any) -> Mapping[Any, Any]:
        """Return alias → output for the result of `_call`; the values are not checked yet."""
        return returned if isinstance(returned, Mapping) else {DEFAULT_OUTPUT: returned}

    def _to_tensor(self, alias: Any, value: Any) -> Any:
        """Return an output as a tensor after checking its alias and type."""
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
