"""The interface of a model in memory, which is the same for all runtimes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection

Array: TypeAlias = np.ndarray[Any, Any]


class CancellationToken(Protocol):
    """Shows whether the caller of a run still waits for the outputs; if not, the run may stop."""

    def raise_if_cancelled(self) -> None:
        """Raise the error Cancelled if the caller no longer waits."""
        ...

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Let a function be called once, when the caller stops waiting.

        If the caller has stopped waiting already, the function is called at once.
        """
        ...

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Remove a function that `add_callback` has added."""
        ...


@runtime_checkable
class LoadedModel(Protocol):
    """One metagraph in memory, ready to run. All methods are thread-safe."""

    @property
    def choice(self) -> MetaGraphSelection:
        """The metagraph, the device and the runtime that were selected, and why."""
        ...

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures by name."""
        ...

    @property
    def signature_defs(self) -> Mapping[str, Any]:
        """The SignatureDef messages of the SavedModel by signature name."""
        ...

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, Array]:
        """Run one signature in the calling thread.

        Input shapes are not compared with the signature: as in TensorFlow Serving, every shape
        that the graph can compute is accepted.

        Args:
          inputs: input alias → array of the signature's dtype. Strings are object arrays of
            bytes. An input with a default in the signature may be missing.
          output_names: aliases of the outputs to compute; None computes all of them.
          timeout_ms: time limit of the run in milliseconds; None sets no limit. As in TensorFlow
            Serving, a run on a real TPU ignores the limit.
          cancellation: cancels the run. A runtime that cannot stop a run checks this token only
            before the run. None if nobody cancels the run.

        Raises:
          InvalidTensor: an input has another dtype, or a shape that the graph refuses.
          Cancelled: the caller stopped waiting before or during the run.
        """
        ...

    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Run several signatures on the same inputs, in one run of the graph.

        Args:
          inputs: input alias → array of the signatures' dtype, with any shape that the graph can
            compute. Every signature receives the inputs.
          timeout_ms: time limit of the run in milliseconds; None sets no limit.
        """
        ...

    def close(self) -> None:
        """Free the memory of the model. Later calls of `run` raise ModelExecutionError."""
        ...
