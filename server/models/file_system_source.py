"""The file system source: polls base paths, and sets the versions that the manager is to load.

Local base paths are read in the thread that polls.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from server.config.model_config import ModelConfig
from server.models.manager import Manager
from server.models.repository import (
    SAVED_MODEL_FILES,
    Repository,
    number_of_only_version,
    select_versions,
    version_number,
)
from server.storage.keras_files import SUFFIX
from server.storage.listing import RemoteDirectory
from server.storage.remote_models import RemoteModels
from tpuserve.errors import TpuserveError, Unavailable, VersionNotFound

_LISTED_NAMES = 5


class RemoteRepository:
    """The versions of one model in remote storage.

    Each call of a method lists the storage again.

    Args:
      models: lists the storage, and knows the local directory to which a version is downloaded.
    """

    def __init__(self, model: ModelConfig, models: RemoteModels) -> None:
        self._model = model
        self._models = models

    def aspired_versions(self) -> dict[int, Path]:
        """Return version → local directory, for the versions that the model's policy selects.

        The directory is in the cache of downloaded versions. It does not exist before the version
        is downloaded.
        """
        base_path = self._model.base_path
        remote = RemoteDirectory(base_path)
        file_name = base_path.rpartition("/")[2]
        if file_name.endswith(SUFFIX):
            number = number_of_only_version(file_name.removesuffix(SUFFIX))
            return self._models.find_directories(remote, {number: ""})
        directories, files = remote.list_names()
        numbers = {name: version_number(name) for name in directories}
        names = {number: name for name, number in numbers.items() if number is not None}
        if not names and set(files) & set(SAVED_MODEL_FILES):
            names = {number_of_only_version(base_path.rstrip("/").rpartition("/")[2]): ""}
        if not names:
            entries = ", ".join([*directories, *files][:_LISTED_NAMES]) or "no entries"
            error = VersionNotFound(
                f"no version directory in {base_path}. Upload the model to a directory named a "
                f"number, as {base_path.rstrip('/')}/1."
            )
            error.add_note(f"The base path has {entries}.")
            raise error
        selected = select_versions(names, self._model.policy, base_path)
        return self._models.find_directories(remote, selected)


def create_repository(
    model: ModelConfig, models: RemoteModels | None, aspired: Collection[Path] = ()
) -> Repository | RemoteRepository:
    """Return a RemoteRepository for a model with a remote base path, else a Repository.

    Args:
      models: lists remote base paths; None to refuse them.

    Raises:
      BasePathNotFound: the base path is a URI whose scheme the server does not support, or is
        remote while `models` is None.
    """
    if model.is_remote and models is not None:
        return RemoteRepository(model, models)
    if models is None:
        return Repository(model.path, model.policy, aspired)
    return Repository(model.path, model.policy, aspired, models.find_export)


# The longest wait for the listing of a remote base path, in seconds since its start. A slower
# listing is not cancelled, and its result is applied when it ends.
_LISTING_WAIT_SECONDS = 30.0
# The interval, in seconds, at which the wait for listings is interrupted, so that Python can handle
# signals such as SIGTERM.
_SIGNAL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class _Listing:
    """The listing of the versions in a base path: its progress and its result."""

    def __init__(self, model: ModelConfig, aspired: Collection[Path]) -> None:
        self.model = model
        self._aspired = aspired
        self.versions: dict[int, Path] = {}
        self.error: TpuserveError | None = None
        self.end = threading.Event()
        self._start = time.monotonic()

    def run(self, models: RemoteModels | None) -> None:
        """List the base path, and set `versions` or `error`."""
        try:
            repository = create_repository(self.model, models, self._aspired)
            self.versions = repository.aspired_versions()
        except TpuserveError as error:
            # Delete the traceback, because the error is kept and the frames of its traceback would
            # keep the data of the listing in memory.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            self.error = error
        except Exception as error:
            # An unexpected failure, such as a stale file handle, must not look like a base path
            # without versions: the server would unload the model.
            self.error = Unavailable(
                f"{self.model.base_path} cannot be listed: {type(error).__name__}: {error}. The "
                f"server goes on; check the storage."
            )

    def is_slow(self, max_seconds: float) -> bool:
        """Return whether the listing has not ended, and began at least `max_seconds` ago."""
        return not self.end.is_set() and time.monotonic() - self._start >= max_seconds

    def wait(self, max_seconds: float) -> None:
        """Wait until the listing has ended, at most until `max_seconds` after its start."""
        while not self.is_slow(max_seconds) and not self.end.wait(
            min(_SIGNAL_SECONDS, max(0, self._start + max_seconds - time.monotonic()))
        ):
            pass


class FileSystemSource:
    """Polls the base paths of models, and sets the versions that the manager is to load.

    If a base path cannot be read, its model keeps the loaded versions, and other models are not
    affected.

    Args:
      remote_models: lists remote base paths, and knows the local directory to which a version
        is downloaded; None to refuse remote base paths.
      listing_wait_seconds: the longest wait for the listing of a remote base path, in seconds
        since the start of the listing.
    """

    def __init__(
        self,
        manager: Manager,
        remote_models: RemoteModels | None = None,
        listing_wait_seconds: float = _LISTING_WAIT_SECONDS,
    ) -> None:
        self._manager = manager
        self._remote_models = remote_models
        self._listing_wait_seconds = listing_wait_seconds
        # The listings of remote base paths that have not ended.
        self._listings: list[_Listing] = []
        # Model name → model, of all models whose base paths are polled.
        self._models: dict[str, ModelConfig] = {}
        self._last_warnings: dict[str, str] = {}
        self._lock = threading.RLock()

    def set_models(
        self, models: tuple[ModelConfig, ...], polled: Collection[str] | None = None
    ) -> None:
        """Replace the models whose base paths are polled, and poll them now.

        The method waits neither for loads nor for the listings of remote base paths.

        Args:
          polled: the names of the models to poll now; None for all. A poll of many base paths
            takes processor time from requests.
        """
        with self._lock:
            removed = self._models.keys() - {model.name for model in models}
            self._models = {model.name: model for model in models}
            for name in sorted(removed):
                self._last_warnings.pop(name, None)
                self._manager.set_aspired_versions(name, {})
            self.poll_once(polled)

    def wait_for_listings(self, names: Collection[str]) -> None:
        """Wait for a limited time until the running listings of remote base paths have ended.

        Args:
          names: the names of the models to wait for. If the storage of a model does not answer in
            time, the status of the model says so.
        """
        with self._lock:
            listings = [listing for listing in self._listings if listing.model.name in names]
        for listing in listings:
            listing.wait(self._listing_wait_seconds)
        self._report_slow_listings()

    def find_versions(self, model: ModelConfig) -> dict[int, Path]:
        """Return version → directory, for the versions of a model that its version policy selects.

        Raises:
          Unavailable: remote storage does not answer in time.
        """
        listing = self._create_listing(model)

        def run() -> None:
            listing.run(self._remote_models)
            listing.end.set()

        if model.is_remote:
            threading.Thread(target=run, name="listing", daemon=True).start()
            listing.wait(self._listing_wait_seconds)
            if not listing.end.is_set():
                raise self._slow_error(model)
        else:
            run()
        if listing.error is not None:
            raise listing.error
        return listing.versions

    def poll_once(self, names: Collection[str] | None = None) -> None:
        """List base paths once, and set the versions that the manager is to load.

        The method does not wait for the listings of remote base paths.

        Args:
          names: the names of the models whose base paths to list; None for all.
        """
        with self._lock:
            models = [
                model for name, model in self._models.items() if names is None or name in names
            ]
            for model in models:
                if not model.is_remote:
                    self._run(self._create_listing(model))
            self._listings = [listing for listing in self._listings if not listing.end.is_set()]
            listed = [listing.model for listing in self._listings]
            for model in models:
                # Do not start a second listing of a base path while the first is still running.
                if model.is_remote and model not in listed:
                    listing = self._create_listing(model)
                    threading.Thread(
                        target=self._run, args=(listing,), name="listing", daemon=True
                    ).start()
                    self._listings.append(listing)
            self._report_slow_listings()

    def _is_polled(self, model: ModelConfig) -> bool:
        return self._models.get(model.name) == model

    def _create_listing(self, model: ModelConfig) -> _Listing:
        return _Listing(model, self._manager.aspired_versions(model.name).values())

    def _run(self, listing: _Listing) -> None:
        listing.run(self._remote_models)
        with self._lock:
            if self._is_polled(listing.model):
                self._apply(listing.model, listing.versions, listing.error)
            listing.end.set()

    def _report_slow_listings(self) -> None:
        with self._lock:
            for listing in self._listings:
                model = listing.model
                if self._is_polled(model) and listing.is_slow(self._listing_wait_seconds):
                    self._apply(model, {}, self._slow_error(model))

    def _slow_error(self, model: ModelConfig) -> Unavailable:
        return Unavailable(
            f"{model.base_path} was not listed within {self._listing_wait_seconds:g} s. The server "
            f"goes on; check the address and the network."
        )

    def _apply(
        self, model: ModelConfig, versions: dict[int, Path], error: TpuserveError | None
    ) -> None:
        if isinstance(error, VersionNotFound):
            self._manager.set_aspired_versions(model.name, {})
            self._manager.set_unavailable_reason(model.name, error)
            self._log_warning(
                model.name, f"No versions of servable {model.name}: {error.text_for_operators}"
            )
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
        # Log a warning only if it differs from the last one: a poll every second would repeat it.
        if self._last_warnings.get(name) != text:
            self._last_warnings[name] = text
            logger.warning("%s", text)


class PeriodicFunction:
    """Calls a function periodically in a separate thread; exceptions are logged.

    Args:
      interval_seconds: the pause between two calls, in seconds; 0 or less for no calls.
    """

    def __init__(self, name: str, function: Callable[[], None], interval_seconds: float) -> None:
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
        """Make no further calls.

        The method does not wait for a call in progress.
        """
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._function()
            except Exception:
                # Log the exception and continue, because a failed call must not end the periodic
                # calls.
                logger.exception("%s: failed, trying again later", self._name)
