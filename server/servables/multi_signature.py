"""What can compute several signatures at once."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from server.servables.servable import Array


@runtime_checkable
class RunsTogether(Protocol):
    """A model that computes several signatures in one run, or a batcher around it."""

    def run_multi(
        self,
        wanted: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Signature → its outputs, by alias.

        Args:
          wanted: signature → the outputs wanted of it.
          inputs: alias → array, the same tensors for all of the signatures.
        """
