"""How a model is called: inputs by alias in, outputs by alias out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import ExportError

DEFAULT_OUTPUT = "output"


class CallableModel(ABC):
    """Something to call.

    Attributes:
      function: what the caller gave.
      title: how messages name it.
      places_itself: whether it is told `use_tpu` and puts itself on the TPU.
    """

    places_itself = False

    def __init__(self, function: Any, title: str) -> None:
        """Takes what the caller gave."""
        self.function = function
        self.title = title

    def __call__(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> dict[str, Any]:
        """The outputs by alias.

        Raises:
          ExportError: there are none, or one is no tensor.
        """
        returned = self._returned(inputs, use_tpu=use_tpu)
        outputs = dict(self._by_alias(returned))
        if not outputs:
            raise ExportError(f"{self.title} returned no output. Return at least one tensor.")
        return {alias: self._tensor(alias, each) for alias, each in outputs.items()}

    @abstractmethod
    def own_specs(self) -> Mapping[str, Any] | None:
        """The inputs that it tells by itself, alias → tf.TensorSpec; None if it does not."""

    @abstractmethod
    def check_aliases(self, signature_name: str, aliases: Sequence[str]) -> None:
        """Refuses inputs that it cannot be called with.

        Raises:
          InvalidSetting: it has others.
        """

    @abstractmethod
    def _returned(self, inputs: Mapping[str, Any], *, use_tpu: bool) -> Any: ...

    def _by_alias(self, returned: Any) -> Mapping[Any, Any]:
        return returned if isinstance(returned, Mapping) else {DEFAULT_OUTPUT: returned}

    def _tensor(self, alias: Any, value: Any) -> Any:
        if not isinstance(alias, str):
            raise ExportError(f"{self.title} named an output {alias!r}. Name it by a string.")
        if isinstance(value, tf.Variable):
            value = tf.convert_to_tensor(value)
        if not isinstance(value, tf.Tensor):
            raise ExportError(
                f"{self.title} returned {type(value).__name__} as {alias!r}. Return a tensor, or "
                f"a dict of names and tensors; make sparse and ragged ones dense."
            )
        return value
