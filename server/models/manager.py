"""The manager: loads and unloads versions until the loaded versions are the aspired versions."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Protocol

from server.config.settings import LOAD_THREADS
from server.models.servable_loader import MakeRunner, Retries, ServableLoader, WarmUp, is_retriable
from server.servables import directory_fingerprint
from server.servables.directory_fingerprint import Fingerprint
from server.servables.servable import Load, Servable, State, VersionStatus
from tpuserve.errors import LabelNotFound, ModelLoadError, ModelNotFound, TpuserveError

_LOADING = (State.START, State.LOADING)
_UNLOAD_THREADS = 4
_DOWNLOAD_THREADS = 4
# The time before the first retry of a failed download, in seconds. It doubles with each retry, up
# to the interval between retries of loads.
_FIRST_RETRY_SECONDS = 1
_NO_RETRIES = Retries()

logger = logging.getLogger(__name__)


class VersionLease(Protocol):
    """Keeps the files of a downloaded version."""

    def close(self) -> None:
        """Allow the files to be removed."""


class Downloader(Protocol):
    """Downloads versions whose directories do not exist yet."""

    def is_remote(self, directory: Path) -> bool:
        """Return whether a version has to be fetched before it is loaded."""

    def fetch(self, directory: Path, is_cancelled: Callable[[], bool]) -> VersionLease:
        """Download a version to its directory, and keep it there until the lease is closed.

        Args:
          directory: the directory of the version.
          is_cancelled: returns whether the version is not needed any more.

        Raises:
          TpuserveError: the version cannot be downloaded.
        """


class ServableHandle:
    """A context manager that yields a version and keeps the version loaded inside the block."""

    __slots__ = ("_find", "_label", "_name", "_servable", "_version")

    def __init__(
        self,
        find: Callable[[str, int | None, str | None], Servable],
        name: str,
        version: int | None,
        label: str | None,
    ) -> None:
        self._find, self._name, self._version, self._label = find, name, version, label

    def __enter__(self) -> Servable:
        self._servable = self.acquire()
        return self._servable

    def acquire(self) -> Servable:
        """Return the version, which stays loaded until the caller calls its method `release`."""
        return self._find(self._name, self._version, self._label)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._servable.release()


class Manager:
    """Owns the servables of all models.

    The manager preserves availability: a new version is loaded before the old version is unloaded,
    and the old version is closed when the last request that uses it has finished. Loads and unloads
    run in separate threads, so that neither requests nor other models wait.
    """

    def __init__(
        self,
        load: Load,
        *,
        make_runner: MakeRunner = lambda model, directory, name: model,
        warm_up: WarmUp | None = None,
        find_load: Callable[[str], Load] | None = None,
        retries: Retries = _NO_RETRIES,
        load_threads: int = 0,
        unload_threads: int = 0,
        on_change: Callable[[Servable, State], None] = lambda servable, state: None,
        during_move: Callable[[], AbstractContextManager[None]] = nullcontext,
        after_unload: Callable[[], None] = lambda: None,
        downloader: Downloader | None = None,
    ) -> None:
        """Create a manager without models.

        Args:
          load: loads the model in a version's directory.
          make_runner: see `ServableLoader`.
          warm_up: see `ServableLoader`.
          find_load: see `ServableLoader`.
          retries: how failed loads are retried.
          load_threads: how many versions load at the same time; 0 for the default.
          unload_threads: how many versions unload at the same time; 0 for the default.
          on_change: called with a version and its new state, at each change.
          during_move: a context manager that is entered around each load and each unload.
          after_unload: called when the memory of a version can be released.
          downloader: downloads versions before they are loaded; None if all versions are local. A
            failed download is retried until it succeeds or the version is no longer aspired.
        """
        self._loader = ServableLoader(load, make_runner, warm_up, find_load)
        self._retries = retries
        self._on_change = on_change
        self._during_move = during_move
        self._after_unload = after_unload
        self._aspired: dict[str, dict[int, Path]] = {}
        # Model name → servables, newest version first. A tuple is never changed but replaced, so
        # that requests can read it without a lock.
        self._servables: dict[str, tuple[Servable, ...]] = {}
        self._labels: dict[str, Mapping[str, int]] = {}
        self._unavailable_reasons: dict[str, TpuserveError] = {}
        self._fingerprints: dict[Servable, tuple[Fingerprint, Fingerprint]] = {}
        self._timers: dict[threading.Timer, Servable] = {}
        self._downloader = downloader
        self._leases: dict[Servable, VersionLease] = {}
        # Version → the number of its downloads that have failed since the last success.
        self._failed_downloads: dict[Servable, int] = {}
        self._is_closed = False
        self._condition = threading.Condition(threading.RLock())
        self._loads = ThreadPoolExecutor(load_threads or LOAD_THREADS, "load")
        self._downloads = ThreadPoolExecutor(_DOWNLOAD_THREADS, "download")
        self._unloads = ThreadPoolExecutor(unload_threads or _UNLOAD_THREADS, "unload")

    def set_aspired_versions(self, name: str, versions: Mapping[int, Path]) -> None:
        """Start to load and unload versions until exactly the aspired versions are loaded.

        The method does not wait for the loads. A version that fails to load ends with its error in
        the status. The version is tried again after it was left out of the aspired versions once,
        or after its files have changed. While no aspired version is available, the old versions
        stay.

        Args:
          name: the name of the model.
          versions: version → directory, of every aspired version.
        """
        changed = self._failed_and_changed(name)
        with self._condition:
            self._unavailable_reasons.pop(name, None)
            previous = self._aspired.get(name, {})
            self._aspired[name] = dict(versions)
            for timer, servable in list(self._timers.items()):
                is_gone = servable.name == name and not self._is_aspired(servable)
                if not (is_gone or servable in changed) or self._is_closed:
                    continue
                timer.cancel()
                del self._timers[timer]
                if is_gone:
                    # Cancel the retry of a version that is no longer aspired.
                    servable.mark_cancelled()
                else:
                    # Retry at once if the files of the version have changed.
                    self._submit(servable, self._retries.count)
            for version in sorted(versions, reverse=True):
                directory = versions[version]
                is_changed = any(version == servable.version for servable in changed)
                if (
                    is_changed or previous.get(version) != directory
                ) and not self._is_loading_or_available(name, version, directory):
                    servable = self._add(name, version, directory)
                    if not self._is_closed:
                        self._submit(servable, self._retries.count)
            self._unload_superseded(name)

    def set_unavailable_reason(self, name: str, error: TpuserveError) -> None:
        """Record why no version of a model is known; the status of the model reports the reason."""
        with self._condition:
            self._unavailable_reasons[name] = error
            self._condition.notify_all()

    def unavailable_reason(self, name: str) -> TpuserveError | None:
        """Return why no version of a model is known; None if versions are known."""
        return self._unavailable_reasons.get(name)

    def set_version_labels(self, name: str, labels: Mapping[str, int]) -> None:
        """Replace all version labels of a model: label → version."""
        self._labels[name] = dict(labels)

    def version_labels(self, name: str) -> Mapping[str, int]:
        """Return the version labels of a model: label → version."""
        return self._labels.get(name, {})

    def get_servable_handle(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> ServableHandle:
        """Return a context manager for a version; by default for the latest available version.

        Entering the context manager raises ModelNotFound if no such version is available, and
        LabelNotFound if no version has the label.
        """
        return ServableHandle(self._acquire, name, version, label)

    def names(self) -> list[str]:
        """Return the names of all models that are or were aspired, sorted."""
        with self._condition:
            return sorted({*self._servables, *self._unavailable_reasons})

    def status(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of all versions ever aspired, or of one version; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or the given version is not.
        """
        servables = self._servables.get(name, ())
        if not servables:
            reason = self._unavailable_reasons.get(name)
            suffix = f": {reason}" if reason else ""
            raise ModelNotFound(f"Could not find any versions of model {name}{suffix}")
        if version is None:
            return [servable.status for servable in servables]
        for servable in servables:
            if servable.version == version:
                return [servable.status]
        raise ModelNotFound(f"Could not find version {version} of model {name}")

    def is_available(self, name: str, version: int | None = None) -> bool:
        """Return whether the given version, or any version if none is given, answers requests."""
        return any(
            servable.state is State.AVAILABLE and version in (None, servable.version)
            for servable in self._servables.get(name, ())
        )

    def wait(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Block until a condition on the versions' states holds, or the timeout passes.

        Args:
          is_done: evaluates the condition; called after each change of a state.
          timeout_seconds: how long to wait; None for no limit.

        Returns:
          Whether the condition holds.
        """
        with self._condition:
            return self._condition.wait_for(is_done, timeout_seconds)

    def matches_aspired(self, name: str) -> bool:
        """Return whether an aspired version is available and the base path has no error."""
        with self._condition:
            return name not in self._unavailable_reasons and any(
                servable.state is State.AVAILABLE and self._is_aspired(servable)
                for servable in self._servables.get(name, ())
            )

    def is_converged(self, name: str) -> bool:
        """Return whether no version of a model is loading or waits for a retry of its load."""
        with self._condition:
            return self._is_converged(name)

    def has_failed_download(self, name: str) -> bool:
        """Return whether a version of a model waits for the retry of a failed download."""
        with self._condition:
            return any(servable.name == name for servable in self._failed_downloads)

    def close(self, timeout_seconds: float) -> bool:
        """Unload every version.

        Args:
          timeout_seconds: how long to wait for requests in flight.

        Returns:
          Whether every version is unloaded. A version that is still in use or loading stays.
        """
        with self._condition:
            self._is_closed = True
            timers, servables = dict(self._timers), self._all()
        for timer, servable in timers.items():
            timer.cancel()
            servable.mark_cancelled()
        self._downloads.shutdown(wait=False, cancel_futures=True)
        self._loads.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + timeout_seconds
        for servable in servables:
            servable.begin_unload()
        for servable in servables:
            if servable.state is State.UNLOADING:
                servable.finish_unload(max(0, deadline - time.monotonic()))
        self._unloads.shutdown(wait=False, cancel_futures=True)
        return all(servable.state not in (State.UNLOADING, State.LOADING) for servable in servables)

    def _submit(self, servable: Servable, tries_left: int) -> None:
        """Start to download a version if need be, and then to load it."""
        if self._downloads_first(servable):
            self._downloads.submit(self._download, servable, tries_left)
        else:
            self._loads.submit(self._load, servable, tries_left)

    def _downloads_first(self, servable: Servable) -> bool:
        directory = servable.directory
        return (
            self._downloader is not None
            and directory is not None
            and servable not in self._leases
            and self._downloader.is_remote(directory)
        )

    def _download(self, servable: Servable, tries_left: int) -> None:
        assert self._downloader is not None
        assert servable.directory is not None
        with self._condition:
            if not self._is_aspired(servable):
                servable.mark_cancelled()
                return
            servable.mark_loading()

        def is_cancelled() -> bool:
            return self._is_closed or not self._is_aspired(servable)

        try:
            lease = self._downloader.fetch(servable.directory, is_cancelled)
        except Exception as error:
            self._handle_failed_download(servable, error, tries_left, is_cancelled)
            return
        with self._condition:
            self._failed_downloads.pop(servable, None)
            self._leases[servable] = lease
            if is_cancelled():
                servable.mark_cancelled()
            else:
                self._loads.submit(self._load, servable, tries_left)

    def _handle_failed_download(
        self,
        servable: Servable,
        error: Exception,
        tries_left: int,
        is_cancelled: Callable[[], bool],
    ) -> None:
        if is_cancelled():
            servable.mark_cancelled()
            return
        if not isinstance(error, TpuserveError):
            logger.exception("%s: cannot be downloaded", servable, exc_info=error)
            error = ModelLoadError(f"{servable} cannot be downloaded: {type(error).__name__}")
        error.__traceback__ = error.__cause__ = error.__context__ = None
        with self._condition:
            failures = self._failed_downloads.get(servable, 0)
            self._failed_downloads[servable] = failures + 1
            delay = min(_FIRST_RETRY_SECONDS * 2**failures, self._retries.interval_seconds)
            logger.error("%s: trying again in %.0f s: %s", servable, delay, error)
            servable.mark_failed(error, is_final=False)
            self._retry_later(servable, error, tries_left, delay)

    def _load(self, servable: Servable, tries_left: int) -> None:
        assert servable.directory is not None
        fingerprint = directory_fingerprint.directory_fingerprint(servable.directory)
        with self._condition:
            # Hold the lock from the check until the new state is set. Otherwise
            # `set_aspired_versions` could mistake a version that is about to end for a version
            # that is loading.
            if not self._is_aspired(servable):
                servable.mark_cancelled()
                return
            servable.mark_loading()
        logger.info("%s: loading %s", servable, servable.directory)
        try:
            with self._during_move():
                model, runner = self._loader.load_servable(servable, servable.directory)
        except TpuserveError as error:
            self._handle_failure(
                servable, error, fingerprint, tries_left if is_retriable(error) else 0
            )
            return
        except BaseException:
            logger.exception("%s: the load was interrupted", servable)
            servable.mark_cancelled()
            raise
        logger.info("%s: %s", servable, model.choice)
        servable.mark_available(model, runner)
        with self._condition:
            if self._is_closed:
                self._begin_unload(servable)
            self._unload_superseded(servable.name)

    def _handle_failure(
        self, servable: Servable, error: TpuserveError, fingerprint: Fingerprint, tries_left: int
    ) -> None:
        # Drop the traceback, because the error is kept and the traceback's frames would keep the
        # data of the failed load in memory.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        logger.error("%s: cannot be loaded: %s", servable, error)

        with self._condition:
            if servable not in self._leases:
                # The files of a downloaded version never change: changed files are another version.
                self._fingerprints[servable] = (fingerprint, fingerprint)
            is_last = tries_left <= 0 or self._is_closed or not self._is_aspired(servable)
            servable.mark_failed(error, is_final=is_last)
            if not is_last:
                self._retry_later(servable, error, tries_left - 1, self._retries.interval_seconds)

    def _retry_later(
        self, servable: Servable, error: TpuserveError, tries_left: int, delay_seconds: float
    ) -> None:
        def retry() -> None:
            with self._condition:
                if self._timers.pop(timer, None) is None:
                    return
                if self._is_closed:
                    servable.mark_failed(error)
                else:
                    self._submit(servable, tries_left)

        timer = threading.Timer(delay_seconds, retry)
        timer.daemon = True
        self._timers[timer] = servable
        timer.start()

    def _failed_and_changed(self, name: str) -> list[Servable]:
        """Return the failed versions whose files changed after the failure and change no more."""
        changed = []
        for servable in self._servables.get(name, ()):
            fingerprints = self._fingerprints.get(servable)
            if fingerprints is None or servable.directory is None or not self._has_failed(servable):
                continue
            at_failure, at_last_poll = fingerprints
            now = directory_fingerprint.directory_fingerprint(servable.directory)
            # Retry only when the files are the same at two polls, because a directory that is still
            # being copied would fail again.
            if now != at_failure and now == at_last_poll:
                changed.append(servable)
            self._fingerprints[servable] = (at_failure, now)
        return changed

    def _has_failed(self, servable: Servable) -> bool:
        """Return whether a version has failed and is not being loaded now."""
        return servable.state is State.END or servable in list(self._timers.values())

    def _unload_superseded(self, name: str) -> None:
        for servable in self._superseded(name):
            self._begin_unload(servable)

    def _superseded(self, name: str) -> list[Servable]:
        """Return the available versions to unload: those that are no longer aspired.

        A model with aspired versions keeps the old versions until an aspired version is available.
        """
        aspired = self._aspired.get(name, {})
        available = [
            servable
            for servable in self._servables.get(name, ())
            if servable.state is State.AVAILABLE
        ]
        if aspired and not any(self._is_aspired(servable) for servable in available):
            return []
        return [servable for servable in available if not self._is_aspired(servable)]

    def _begin_unload(self, servable: Servable) -> None:
        if servable.begin_unload() and not self._is_closed:
            self._unloads.submit(self._finish_unload, servable)

    def _finish_unload(self, servable: Servable) -> None:
        with self._during_move():
            try:
                servable.finish_unload()
            except Exception:
                logger.exception("%s: cannot be closed", servable)
            self._after_unload()

    def _is_aspired(self, servable: Servable) -> bool:
        return self._aspired.get(servable.name, {}).get(servable.version) == servable.directory

    def _is_converged(self, name: str) -> bool:
        return not any(servable.state in _LOADING for servable in self._servables.get(name, ()))

    def _is_loading_or_available(self, name: str, version: int, directory: Path) -> bool:
        return any(
            servable.version == version
            and servable.directory == directory
            and servable.state in (State.AVAILABLE, *_LOADING)
            for servable in self._servables.get(name, ())
        )

    def _add(self, name: str, version: int, directory: Path) -> Servable:
        servable = Servable(name, version, directory, self._note_change)
        ended = (State.END,)
        # The new servable replaces a servable of the same version that has ended. A servable that
        # still runs requests stays listed.
        others = [
            other
            for other in self._servables.get(name, ())
            if not (other.version == version and other.state in ended)
        ]
        for replaced in set(self._servables.get(name, ())) - set(others):
            self._fingerprints.pop(replaced, None)
        # The sort is stable, so of two servables with the same version the newer comes first.
        newest_first = sorted([servable, *others], key=lambda candidate: -candidate.version)
        self._servables[name] = tuple(newest_first)
        self._note_change(servable, State.START)
        return servable

    def _all(self) -> list[Servable]:
        return [servable for servables in self._servables.values() for servable in servables]

    def _note_change(self, servable: Servable, state: State) -> None:
        if state is State.END:
            with self._condition:
                self._failed_downloads.pop(servable, None)
                lease = self._leases.pop(servable, None)
                if lease is not None:
                    lease.close()
        self._on_change(servable, state)
        with self._condition:
            self._condition.notify_all()

    def _acquire(self, name: str, version: int | None, label: str | None) -> Servable:
        if label:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise LabelNotFound(f"Unrecognized servable version label: {label}")
        while True:
            servables = self._servables.get(name, ())
            for servable in servables:
                if (version is None or version == servable.version) and servable.try_acquire():
                    return servable
            # A version may have become available after the loop checked it. So try again if the
            # list of servables has changed, or if a version is available now.
            if servables is self._servables.get(name, ()) and not self.is_available(name, version):
                break
        request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ModelNotFound(f"Servable not found for request: {request}")


def statuses(manager: Manager, names: Iterable[str]) -> dict[str, list[VersionStatus]]:
    """Return the status of each named model; an empty list for a model without known versions."""
    statuses_by_name = {}
    for name in names:
        try:
            statuses_by_name[name] = manager.status(name)
        except ModelNotFound:
            statuses_by_name[name] = []
    return statuses_by_name
