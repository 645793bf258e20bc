"""The interface of models and batching runners that compute several signatures in one run."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from server.admission.cancellation import Cancellation
from server.servables.servable import Array


@runtime_checkable
class SupportsMultiRun(Protocol):
    """A model, or a batching runner around a model, that computes several signatures in one run."""

    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Compute the outputs of several signatures for the same inputs.

        Args:
          inputs: alias → array; all signatures get the same inputs. An array has the dtype of the
            input in the signatures, and any shape that the model can compute.
          timeout_ms: the time limit in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.
        """
