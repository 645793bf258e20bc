"""The file system source: polls base paths and sets the manager's aspired versions.

A local base path is read in the thread that polls. A remote base path is listed in a thread of its
own, so that storage that does not answer delays no other model.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from server.config.model_config import ModelConfig
from server.models.manager import Manager
from server.models.remote_repository import repository_of
from server.storage.remote_models import RemoteModels
from tpuserve.errors import TpuserveError, VersionNotFound

# The interval, in seconds, at which the wait for listings is interrupted, so that Python can handle
# signals such as SIGTERM.
_SIGNAL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class FileSystemSource:
    """Polls the base paths of models and tells the manager which versions to serve.

    A base path that cannot be read does not affect other models, and its model keeps the loaded
    versions. A model whose base path has no versions left is unloaded.
    """

    def __init__(self, manager: Manager, remote_models: RemoteModels | None = None) -> None:
        """Create a source of aspired versions for a manager.

        Args:
          manager: loads and unloads the versions.
          remote_models: has the directory of each remote version in the cache; None to refuse
            remote base paths.
        """
        self._manager = manager
        self._remote_models = remote_models
        # The models whose remote base paths are being listed, with the threads that list them.
        self._listings: list[tuple[ModelConfig, threading.Thread]] = []
        self._models: tuple[ModelConfig, ...] = ()
        self._last_warnings: dict[str, str] = {}
        self._lock = threading.RLock()

    def set_models(self, models: tuple[ModelConfig, ...]) -> None:
        """Replace the polled models, and poll each model now; does not wait for loads.

        The method returns when each base path has been listed once.
        """
        with self._lock:
            removed = {model.name for model in self._models} - {model.name for model in models}
            self._models = models
            for name in sorted(removed):
                self._last_warnings.pop(name, None)
                self._manager.set_aspired_versions(name, {})
            listings = self._poll_all()
        for thread in listings:
            while thread.is_alive():
                thread.join(_SIGNAL_SECONDS)

    def find_versions(self, model: ModelConfig) -> dict[int, Path]:
        """Return version → directory for the versions of a model that its policy selects.

        Raises:
          TpuserveError: the base path cannot be read, or has no such version.
        """
        return repository_of(model, self._remote_models).aspired_versions()

    def poll_once(self) -> None:
        """Read every base path once, and tell the manager which versions to serve.

        The method does not wait for the listings of remote base paths.
        """
        self._poll_all()

    def _poll_all(self) -> list[threading.Thread]:
        """Do what `poll_once` does, and return the threads that list remote base paths."""
        with self._lock:
            for model in self._models:
                if not model.is_remote:
                    self._poll_model(model)
            self._listings = [listing for listing in self._listings if listing[1].is_alive()]
            listed = [model for model, _ in self._listings]
            for model in self._models:
                # Start no second listing of a base path that is still being listed.
                if model.is_remote and model not in listed:
                    thread = threading.Thread(
                        target=self._poll_model, args=(model,), name="listing", daemon=True
                    )
                    self._listings.append((model, thread))
                    thread.start()
            return [thread for model, thread in self._listings if model in self._models]

    def _poll_model(self, model: ModelConfig) -> None:
        versions: dict[int, Path] = {}
        failure: TpuserveError | None = None
        try:
            versions = self.find_versions(model)
        except TpuserveError as error:
            # The frames of the traceback would keep the listing in memory.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            failure = error
        with self._lock:
            if model in self._models:
                self._apply(model, versions, failure)

    def _apply(
        self, model: ModelConfig, versions: dict[int, Path], error: TpuserveError | None
    ) -> None:
        if isinstance(error, VersionNotFound):
            self._manager.set_aspired_versions(model.name, {})
            self._manager.set_unavailable_reason(model.name, error)
            self._log_warning(model.name, f"No versions of servable {model.name}: {error}")
        elif error is not None:
            self._manager.set_unavailable_reason(model.name, error)
            self._log_warning(
                model.name,
                f"Could not find base path {model.base_path} for servable {model.name} with "
                f"error {error}",
            )
        else:
            self._last_warnings.pop(model.name, None)
            self._manager.set_aspired_versions(model.name, versions)

    def _log_warning(self, name: str, text: str) -> None:
        # Log a warning only once, even if its cause recurs at every poll.
        if self._last_warnings.get(name) != text:
            self._last_warnings[name] = text
            logger.warning("%s", text)


class PeriodicFunction:
    """Calls a function periodically in a thread of its own; exceptions are logged."""

    def __init__(self, name: str, function: Callable[[], None], interval_seconds: float) -> None:
        """Create a periodic call that starts with `start`.

        Args:
          name: the name of the thread and of the function in log lines.
          function: the function to call.
          interval_seconds: the pause after each call, in seconds; 0 or less for no calls.
        """
        self._name = name
        self._function = function
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_active(self) -> bool:
        """Whether the interval is positive; otherwise `start` makes no calls."""
        return self._interval_seconds > 0

    def start(self) -> None:
        """Start the thread; the first call comes after one interval."""
        if self.is_active:
            self._thread.start()

    def stop(self) -> None:
        """Stop further calls; does not wait for a call in progress."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._function()
            except Exception:
                # Log the exception and go on: a failed call must not end the periodic calls.
                logger.exception("%s: failed, trying again later", self._name)
