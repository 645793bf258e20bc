"""The file system source: polls base paths and sets the manager's aspired versions."""

import logging
import threading
from collections.abc import Callable

from server.config.model_config import ModelConfig
from server.models.manager import Manager
from server.models.repository import Repository
from tpuserve.errors import TpuserveError, VersionNotFound

logger = logging.getLogger(__name__)


class FileSystemSource:
    """Polls the base paths of models and tells the manager which versions to serve.

    A base path that cannot be read does not affect other models, and its model keeps the loaded
    versions. A model whose base path has no versions left is unloaded.
    """

    def __init__(self, manager: Manager) -> None:
        """Create a source of aspired versions for a manager."""
        self._manager = manager
        self._models: tuple[ModelConfig, ...] = ()
        self._last_warnings: dict[str, str] = {}
        self._lock = threading.RLock()

    def set_models(self, models: tuple[ModelConfig, ...]) -> None:
        """Replace the polled models, and poll each model now; does not wait for loads."""
        with self._lock:
            removed = {model.name for model in self._models} - {model.name for model in models}
            self._models = models
            for name in sorted(removed):
                self._last_warnings.pop(name, None)
                self._manager.set_aspired_versions(name, {})
            self.poll_once()

    def poll_once(self) -> None:
        """Read every base path once, and tell the manager which versions to serve."""
        with self._lock:
            for model in self._models:
                self._poll_model(model)

    def _poll_model(self, model: ModelConfig) -> None:
        try:
            versions = Repository(model.path, model.policy).aspired_versions()
        except VersionNotFound as error:
            self._manager.set_aspired_versions(model.name, {})
            self._manager.set_unavailable_reason(model.name, error)
            self._log_warning(model.name, f"No versions of servable {model.name}: {error}")
        except TpuserveError as error:
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
