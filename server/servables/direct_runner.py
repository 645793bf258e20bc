"""Runs requests on a model without batches."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from server.admission import nonblocking
from server.admission.cancellation import Cancellation
from server.request import RequestContext
from server.servables.servable import Array, Model
from tpuserve.errors import DeadlineExceeded


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


Outputs = TypeVar("Outputs")


class DirectRunner:
    """Runs each request, or each merged batch of requests, in the calling thread.

    The runtime gets the time that is left here, and nowhere else.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def start(
        self,
        context: RequestContext,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """Compute the outputs of a signature; see `InferenceRunner.start`."""
        return _run(context, partial(self._model.run, signature_name, inputs, output_names))

    def start_multi(
        self,
        context: RequestContext,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
    ) -> dict[str, dict[str, Array]]:
        """Compute the outputs of several signatures; see `InferenceRunner.start_multi`."""
        model = self._model
        if isinstance(model, SupportsMultiRun):
            return _run(context, partial(model.run_multi, output_names, inputs))
        return {
            name: self.start(context, name, inputs, outputs)
            for name, outputs in output_names.items()
        }


def _run(context: RequestContext, run: Callable[..., Outputs]) -> Outputs:
    nonblocking.check_running_allowed()
    timeout_ms = context.remaining_ms()
    try:
        return run(timeout_ms=timeout_ms, cancellation=context.cancellation)
    except DeadlineExceeded as error:
        if timeout_ms is None:
            raise
        raise context.expiry_error() from error
