"""One version of a model: its state, and who is using it."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature

Array: TypeAlias = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """What computes the answer to a request: a model itself, or a batcher around it."""

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[str, Array]:
        """The outputs for some inputs, by alias; called from many threads.

        Args:
          timeout_ms: how long it may take; None for as long as it takes.
        """


class Model(Runner, Protocol):
    """What is served: `tpuserve.runtime.loader.LoadedModel`, or anything like it."""

    @property
    def choice(self) -> object:
        """Which metagraph it is, on what device, and why; shown by `str`.

        One that is not what was wanted has a `fallback` that says so in a sentence.
        """

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """Name → what it takes and gives."""

    @property
    def signature_defs(self) -> Mapping[str, Any]:
        """Name → the whole SignatureDef message, as the SavedModel holds it."""

    def close(self) -> None:
        """Frees what it holds; `run` is not called from here on."""


Load: TypeAlias = Callable[[Path], Model]


class State(Enum):
    """The life of a version. Source: tensorflow_serving/apis/get_model_status.proto."""

    START = 10
    """Known, before any work on it has begun."""
    LOADING = 20
    """Its model is being loaded or warmed up, or the next try is waited for; nobody can use it."""
    AVAILABLE = 30
    """After its model is loaded: requests are answered."""
    UNLOADING = 40
    """No new request gets it; reported before the requests in flight have finished."""
    END = 50
    """Its model is closed, or was never loaded."""


@dataclass(frozen=True)
class VersionStatus:
    """What can be told about one version.

    Attributes:
      error: why it could not be loaded; None where nothing went wrong.
      note: what is worth knowing about a version that works, as that it runs another metagraph
        than was wanted; shown as the error message with code OK. Empty for nothing.
    """

    version: int
    state: State
    error: TpuserveError | None = None
    note: str = ""


class Servable:
    """One version of a model, with a count of the requests that use it."""

    def __init__(
        self,
        name: str,
        version: int,
        directory: Path | None = None,
        on_change: Callable[["Servable", State], None] = lambda servable, state: None,
    ) -> None:
        """Makes a version that is known and not yet loaded.

        Args:
          on_change: called after each change of the state, with no lock of this object held.
        """
        self.name = name
        self.version = version
        self.directory = directory
        self._on_change = on_change
        self._state = State.START
        self._error: TpuserveError | None = None
        self._note = ""
        self._model: Model | None = None
        self._runner: Runner | None = None
        self._users = 0
        # The lock itself is what requests take: through the condition it costs twice as much.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"

    @property
    def state(self) -> State:
        """Its state at the moment."""
        return self._state

    @property
    def status(self) -> VersionStatus:
        """Its state at the moment, and what is to be told with it."""
        with self._changed:
            return VersionStatus(self.version, self._state, self._error, self._note)

    @property
    def model(self) -> Model:
        """The loaded model, for one who holds the version through `try_acquire`."""
        assert self._model is not None, f"{self} is used without having been acquired"
        return self._model

    @property
    def runner(self) -> Runner:
        """What runs requests of this version, for one who holds it: the model, or its batcher."""
        assert self._runner is not None, f"{self} is used without having been acquired"
        return self._runner

    def loading(self) -> None:
        """Work on it has begun."""
        self._enter(State.LOADING)

    def available(self, model: Model, runner: Runner | None = None) -> None:
        """From here on requests get this model."""
        self._model, self._runner = model, runner or model
        self._note = str(getattr(model.choice, "fallback", ""))
        self._enter(State.AVAILABLE, None)

    def failed(self, error: TpuserveError, *, is_final: bool = True) -> None:
        """It cannot be loaded; where that is not final, it is tried again in the same state."""
        self._enter(State.END if is_final else self._state, error)

    def cancelled(self) -> None:
        """It is no longer wanted, and was never loaded."""
        self._enter(State.END)

    def try_acquire(self) -> bool:
        """Whether the caller may use the model now; who may must `release` it afterwards."""
        with self._lock:
            if self._state is not State.AVAILABLE:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        """Ends one use."""
        with self._lock:
            self._users -= 1
            if self._state is not State.AVAILABLE:
                self._changed.notify_all()

    def begin_unload(self) -> bool:
        """From here on no new request gets it; whether it was available until now."""
        with self._changed:
            if self._state is not State.AVAILABLE:
                return False
            self._state = State.UNLOADING
        self._on_change(self, State.UNLOADING)
        return True

    def finish_unload(self, timeout_seconds: float | None = None) -> None:
        """Closes the model once nobody uses it any more; blocks until then.

        Args:
          timeout_seconds: how long to wait for users; None for ever. A model that is still in
            use then is left as it is: closing it under a running request would crash that.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._users == 0, timeout_seconds):
                logger.warning("%s: still used by %d requests, not closed", self, self._users)
                return
            model, runner = self._model, self._runner
            if self._state is not State.UNLOADING or model is None:
                return
            self._model = self._runner = None
        # A batcher ends before the model that it runs.
        close = getattr(runner, "close", None)
        if runner is not model and close is not None:
            close()
        model.close()
        # Let go of here, so that the memory is back when the end is told.
        del model, runner, close
        self._enter(State.END)
        logger.info("%s: unloaded", self)

    def unload(self, timeout_seconds: float | None = None) -> None:
        """Both halves of it, if it is available."""
        if self.begin_unload():
            self.finish_unload(timeout_seconds)

    def _enter(self, state: State, *error: TpuserveError | None) -> None:
        with self._changed:
            self._state = state
            if error:
                self._error = error[0]
        self._on_change(self, state)
