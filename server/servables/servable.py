"""The servable: one version of a model, with its state and its reference count."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from server.admission.cancellation import Cancellation
from server.request import RequestContext
from server.servables.pending import Pending
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature

Array: TypeAlias = np.ndarray[Any, Any]

_DORMANT_NOTE = "not in memory: the first request loads it"

logger = logging.getLogger(__name__)


class InferenceRunner(Protocol):
    """Computes the outputs of requests, directly or in batches. Thread-safe."""

    def start(
        self,
        context: RequestContext,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
    ) -> Mapping[str, Array] | Pending[Mapping[str, Array]]:
        """Begin to compute the outputs of a signature.

        Args:
          inputs: alias → array of the signature's dtype, with any shape that the model can compute.

        Returns:
          Alias → array; a Pending of it if the request waits for a batch. The caller must then call
          its `finish`.

        Raises:
          WouldBlock: the calling thread must not run a model, and the request cannot wait for a
            batch.
        """

    def start_multi(
        self,
        context: RequestContext,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
    ) -> Mapping[str, Mapping[str, Array]] | Pending[Mapping[str, Mapping[str, Array]]]:
        """Begin to compute several signatures for the same inputs, in one run if possible."""


class Model(Protocol):
    """A loaded model, such as a `tpuserve.loader.LoadedModel`."""

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        """Compute the outputs of a signature; see `tpuserve.runtime.loaded_model`. Thread-safe."""

    @property
    def choice(self) -> object:
        """The metagraph that runs, its device, and the reason for this choice.

        `str` formats the object as text.

        If another metagraph was requested, the object has an attribute `fallback`, which says why
        the requested metagraph does not run.
        """

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures of the model: name → signature."""

    @property
    def signature_defs(self) -> Mapping[str, Any]:
        """The SignatureDef messages of the SavedModel: signature name → message."""

    def close(self) -> None:
        """Free the memory and devices of the model; `run` must not be called afterwards."""


def metagraph_of(model: Model) -> str:
    """Return the tags of the metagraph that a model runs, such as "serve,tpu".

    The result is "" for a model without metagraphs, such as a TensorFlow Lite model.
    """
    return ",".join(sorted(getattr(model.choice, "tags", ())))


Load: TypeAlias = Callable[[Path], Model]


class State(Enum):
    """The state of a model version, with the values of TensorFlow Serving's status API.

    Source: tensorflow_serving/apis/get_model_status.proto.
    """

    START = 10
    """The version is known; its load has not started."""
    LOADING = 20
    """The model is loading, warming up or waiting for a retry; requests cannot use it."""
    AVAILABLE = 30
    """The model is loaded and answers requests."""
    UNLOADING = 40
    """New requests are refused; requests in flight may still use the model."""
    END = 50
    """The model is closed, or was never loaded."""


@dataclass(frozen=True)
class VersionStatus:
    """The status of one version of a model.

    Attributes:
      error: why the version could not be loaded; None if there was no error.
      note: a remark about a version that works, for example that it does not run the requested
        metagraph.
      selection: the metagraph that runs, its device, and the reason for this choice, as text; empty
        if the version is not loaded.
    """

    version: int
    state: State
    error: TpuserveError | None = None
    note: str = ""
    selection: str = field(default="", compare=False)


class Servable:
    """One version of a model, with its state and a count of the requests that use it.

    Attributes:
      metagraph: the tags of the metagraph that runs, such as "serve,tpu"; empty if the version is
        not loaded or has no metagraphs.
      is_dormant: whether the version was checked, and is loaded by the first request for it.

    Args:
      on_change: called with this object and the new state after each change of the state. The
        calling thread holds no lock of this object.
    """

    def __init__(
        self,
        name: str,
        version: int,
        directory: Path | None = None,
        on_change: Callable[["Servable", State], None] = lambda servable, state: None,
    ) -> None:
        self.name = name
        self.version = version
        self.directory = directory
        self._on_change = on_change
        self._state = State.START
        self._error: TpuserveError | None = None
        self._note = ""
        self.metagraph = ""
        self.is_dormant = False
        self._model: Model | None = None
        self._runner: InferenceRunner | None = None
        self._num_users = 0
        # The threads of requests acquire `_lock` itself, and not the condition that wraps `_lock`:
        # acquiring the condition takes twice as long.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"

    @property
    def state(self) -> State:
        """The current state of the version."""
        return self._state

    @property
    def status(self) -> VersionStatus:
        """The current status of the version."""
        with self._condition:
            selection = "" if self._model is None else str(self._model.choice)
            return VersionStatus(self.version, self._state, self._error, self._note, selection)

    @property
    def model(self) -> Model:
        """The loaded model, which may be used only between `try_acquire` and `release`."""
        assert self._model is not None, f"{self} is used without try_acquire"
        return self._model

    @property
    def runner(self) -> InferenceRunner:
        """The object that runs requests, directly or in batches."""
        assert self._runner is not None, f"{self} is used without try_acquire"
        return self._runner

    @property
    def error(self) -> TpuserveError | None:
        """Why the version could not be loaded; None if there was no error."""
        return self._error

    @property
    def is_used(self) -> bool:
        """Whether requests use the model."""
        return self._num_users > 0

    def mark_dormant(self) -> None:
        """Enter the state START until a request needs the version, unless it has ended."""
        with self._condition:
            if self._state not in (State.START, State.LOADING):
                return
            self._state, self.is_dormant, self._note = State.START, True, _DORMANT_NOTE
        self._on_change(self, State.START)

    def mark_loading(self) -> None:
        """Enter the state LOADING, in which requests cannot use the version yet."""
        self.is_dormant, self._note = False, ""
        self._enter(State.LOADING)

    def mark_available(self, model: Model, runner: InferenceRunner) -> None:
        """Enter the state AVAILABLE, in which requests use the model through its runner."""
        self._model, self._runner = model, runner
        self._note = str(getattr(model.choice, "fallback", ""))
        self.metagraph = metagraph_of(model)
        self._enter(State.AVAILABLE, None)

    def mark_failed(self, error: TpuserveError, *, is_final: bool = True) -> None:
        """Record that the load has failed.

        If `is_final`, enter the state END. Otherwise keep the state, because the load is retried.
        """
        self._enter(State.END if is_final else self._state, error)

    def mark_cancelled(self) -> None:
        """Enter the state END without a load, because the version is not to be served any more."""
        self._enter(State.END)

    def try_acquire(self) -> bool:
        """If the model is available, keep it loaded until the caller calls `release`."""
        with self._lock:
            if self._state is not State.AVAILABLE:
                return False
            self._num_users += 1
            return True

    def release(self) -> None:
        """Allow the model to be unloaded.

        Must be called once for each `try_acquire` that has returned True.
        """
        with self._lock:
            self._num_users -= 1
            if self._state is not State.AVAILABLE:
                self._condition.notify_all()

    def begin_unload(self) -> bool:
        """If the version is available, enter the state UNLOADING, which refuses new requests."""
        with self._condition:
            if self._state is not State.AVAILABLE:
                return False
            self._state = State.UNLOADING
        self._on_change(self, State.UNLOADING)
        return True

    def finish_unload(self, timeout_seconds: float | None = None) -> None:
        """Wait until no request uses the model, then close it and enter the state END.

        Args:
          timeout_seconds: the longest wait for requests, in seconds; None for no limit.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: self._num_users == 0, timeout_seconds):
                logger.warning(
                    "%s: not closed because %d requests still use it", self, self._num_users
                )
                return
            model, runner = self._model, self._runner
            if self._state is not State.UNLOADING or model is None:
                return
            self._model = self._runner = None
        # Close a batching runner before its model, because the runner may still use the model.
        close = getattr(runner, "close", None)
        if close is not None:
            close()
        model.close()
        # Delete the references to the model and its runner, so that the model's memory is freed
        # before the state END is reported.
        del model, runner, close
        self._enter(State.END)
        logger.info("%s: unloaded", self)

    def _enter(self, state: State, *error: TpuserveError | None) -> None:
        with self._condition:
            self._state = state
            if error:
                self._error = error[0]
        self._on_change(self, state)
