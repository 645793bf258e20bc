"""One version of a model: its state, and who is using it."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from tpuserve.errors import ModelLoadError, TpuserveError
from tpuserve.signature import Signature

Array: TypeAlias = np.ndarray[Any, Any]

logger = logging.getLogger(__name__)


class Model(Protocol):
    """What is served: `tpuserve.loader.LoadedModel`, or anything like it."""

    @property
    def choice(self) -> object:
        """Which metagraph it is, on what device, and why; shown by `str`."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """Name → what it takes and gives."""

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """The outputs for some inputs, by alias; called from many threads."""

    def close(self) -> None:
        """Frees what it holds; `run` is not called from here on."""


Load: TypeAlias = Callable[[Path], Model]


class State(Enum):
    """The life of a version. Source: tensorflow_serving/apis/get_model_status.proto."""

    START = 10
    """Known, before any work on it has begun."""
    LOADING = 20
    """Its model is being loaded; nobody can use it."""
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
    """

    version: int
    state: State
    error: TpuserveError | None = None


class Servable:
    """One version of a model, with a count of the requests that use it."""

    def __init__(self, name: str, version: int) -> None:
        """Makes a version that is known and not yet loaded."""
        self.name = name
        self.version = version
        self._state = State.START
        self._error: TpuserveError | None = None
        self._model: Model | None = None
        self._users = 0
        self._changed = threading.Condition()

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"

    @property
    def status(self) -> VersionStatus:
        """Its state at the moment."""
        with self._changed:
            return VersionStatus(self.version, self._state, self._error)

    @property
    def model(self) -> Model:
        """The loaded model, for one who holds the version through `try_acquire`."""
        assert self._model is not None, f"{self} is used without having been acquired"
        return self._model

    def load(self, load: Load, directory: Path) -> None:
        """Loads the model; a failure is kept in the status and raised to nobody."""
        self._enter(State.LOADING)
        logger.info("%s: loading %s", self, directory)
        try:
            self._model = load(directory)
        except TpuserveError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("%s: cannot be loaded", self)
            self._fail(ModelLoadError(f"{self} cannot be loaded from {directory}: {_line(error)}"))
        else:
            logger.info("%s: %s", self, self._model.choice)
            self._enter(State.AVAILABLE)

    def try_acquire(self) -> bool:
        """Whether the caller may use the model now; who may must `release` it afterwards."""
        with self._changed:
            if self._state is not State.AVAILABLE:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        """Ends one use."""
        with self._changed:
            self._users -= 1
            self._changed.notify_all()

    def unload(self, timeout_seconds: float | None = None) -> None:
        """Closes the model once nobody uses it any more; blocks until then.

        Args:
          timeout_seconds: how long to wait for users; None for ever. A model that is still in
            use then is left as it is: closing it under a running request would crash that.
        """
        with self._changed:
            if self._state is not State.AVAILABLE:
                return
            self._state = State.UNLOADING
            if not self._changed.wait_for(lambda: self._users == 0, timeout_seconds):
                logger.warning("%s: still used by %d requests, not closed", self, self._users)
                return
        self.model.close()
        self._model = None
        self._enter(State.END)
        logger.info("%s: unloaded", self)

    def _enter(self, state: State) -> None:
        with self._changed:
            self._state = state

    def _fail(self, error: TpuserveError) -> None:
        with self._changed:
            self._state = State.END
            self._error = error


def _line(error: Exception) -> str:
    # Errors are told in one line each.
    return " ".join(str(error).split()) or type(error).__name__
