"""The manager: loads and unloads model versions until exactly the aspired versions are loaded."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol

from server.config.settings import LOAD_THREADS
from server.models.residency import Residency
from server.models.servable_loader import (
    MakeRunner,
    Retries,
    ServableLoader,
    WarmUpModel,
    is_retriable,
)
from server.process.thread_pool import ThreadPool
from server.servables import directory_fingerprint
from server.servables.direct_runner import DirectRunner
from server.servables.directory_fingerprint import Fingerprint
from server.servables.servable import Load, Servable, State, VersionStatus
from tpuserve.errors import (
    Code,
    CodedError,
    InvalidInput,
    ModelFileRefused,
    ModelNotFound,
    TpuserveError,
)

_LOADING = (State.START, State.LOADING)
_UNLOAD_THREADS = 4
_DOWNLOAD_THREADS = 4
# The time before the first retry of a failed download, in seconds. The time doubles with each
# retry, up to the interval between the retries of a failed load.
_FIRST_RETRY_SECONDS = 1
_NO_RETRIES = Retries()

logger = logging.getLogger(__name__)


class VersionLease(Protocol):
    """Keeps the files of a downloaded or exported version on disk until it is closed."""

    def close(self) -> None:
        """Allow the cache of these versions to remove the files."""


class Downloader(Protocol):
    """Downloads or exports versions before they are loaded."""

    def is_remote(self, directory: Path) -> bool:
        """Return whether `fetch` must write a directory before the version in it is loaded."""

    def fetch(self, directory: Path, is_cancelled: Callable[[], bool]) -> VersionLease:
        """Write a version to its directory, and return a lease that keeps it there."""


class ServableHandle:
    """A context manager that yields a version, and keeps it loaded while the `with` body runs."""

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
        """Return the version, which stays loaded until the caller calls `Servable.release`."""
        return self._find(self._name, self._version, self._label)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._servable.release()


class Manager:
    """Holds the servables (versions) of all models, and loads and unloads them.

    The aspired versions of a model are those that should be loaded.

    Args:
      find_load: takes a model's name, and returns the function that loads its versions. This
        function replaces `load`. None to use `load` for all models.
      retries: how often and at which interval a failed load is retried.
      load_threads: the largest number of versions that load at the same time; 0 for the
        default.
      unload_threads: the largest number of versions that unload at the same time; 0 for the
        default.
      during_move: returns a context manager, in which each load and each unload runs, for
        example to change settings of the memory allocator.
      after_unload: called after each unload, to return freed memory to the operating system.
      downloader: downloads versions before they are loaded; None if all versions are local. A
        failed download is retried until it succeeds or the version is not aspired any more,
        unless the file is one that every try would refuse.
      residency: decides when each version is loaded and whether it stays in memory; None to load
        all versions at once.
    """

    def __init__(
        self,
        load: Load,
        *,
        make_runner: MakeRunner = lambda model, directory, name: DirectRunner(model),
        warm_up: WarmUpModel | None = None,
        find_load: Callable[[str], Load] | None = None,
        retries: Retries = _NO_RETRIES,
        load_threads: int = 0,
        unload_threads: int = 0,
        on_change: Callable[[Servable, State], None] = lambda servable, state: None,
        during_move: Callable[[], AbstractContextManager[None]] = nullcontext,
        after_unload: Callable[[], None] = lambda: None,
        downloader: Downloader | None = None,
        residency: Residency | None = None,
    ) -> None:
        self._residency = residency
        self._find = self._acquire if residency is None else self._acquire_or_load
        # The versions that the residency has unloaded although they are aspired.
        self._evicted: set[Servable] = set()
        self._loader = ServableLoader(load, make_runner, warm_up, find_load)
        self._retries = retries
        self._on_change = on_change
        self._during_move = during_move
        self._after_unload = after_unload
        self._aspired: dict[str, dict[int, Path]] = {}
        # Model name → servables, newest version first. A change replaces the whole tuple, so that
        # the threads of requests can read the tuple without a lock.
        self._servables: dict[str, tuple[Servable, ...]] = {}
        self._labels: dict[str, Mapping[str, int]] = {}
        self._unavailable_reasons: dict[str, TpuserveError] = {}
        self._fingerprints: dict[Servable, tuple[Fingerprint, Fingerprint]] = {}
        self._timers: dict[threading.Timer, Servable] = {}
        self._downloader = downloader
        self._leases: dict[Servable, VersionLease] = {}
        # Servable → the number of its downloads that have failed in a row; the time until the next
        # retry depends on it.
        self._failed_downloads: dict[Servable, int] = {}
        self._is_closed = False
        self._condition = threading.Condition(threading.RLock())
        self._loads = ThreadPool(load_threads or LOAD_THREADS, "load")
        self._downloads = ThreadPool(_DOWNLOAD_THREADS, "download")
        self._unloads = ThreadPool(unload_threads or _UNLOAD_THREADS, "unload")
        if residency is not None:
            residency.start(self)

    def set_aspired_versions(self, name: str, versions: Mapping[int, Path]) -> None:
        """Set the versions that should be loaded, and start to load and unload versions.

        The method does not wait for the loads. If a version fails to load, its status has the
        error.
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
                    # The version is not aspired any more: do not retry its load.
                    servable.mark_cancelled()
                else:
                    # The files of the version have changed: retry its load now.
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
            if self._residency is not None:
                for servable in self._servables.get(name, ()):
                    if not self._is_aspired(servable) and self._residency.withdraw(servable):
                        servable.mark_cancelled()
            self._unload_superseded(name)

    def aspired_versions(self, name: str) -> Mapping[int, Path]:
        """Return version → directory, for the aspired versions of a model."""
        return self._aspired.get(name, {})

    def retry_failed_loads(self, name: str) -> None:
        """Start to load the aspired versions of a model that have failed to load.

        A version that waits for its next try is loaded now.
        """
        with self._condition:
            if self._is_closed or self._is_any_aspired_available(name):
                return
            for timer, servable in list(self._timers.items()):
                if servable.name == name and self._is_aspired(servable):
                    timer.cancel()
                    del self._timers[timer]
                    self._submit(servable, self._retries.count)
            # Forget the failed downloads. Otherwise a caller that waits for the new download would
            # take the old failure for its result.
            for servable in self._servables.get(name, ()):
                self._failed_downloads.pop(servable, None)
            for version, directory in self._aspired.get(name, {}).items():
                if not self._is_loading_or_available(name, version, directory):
                    self._submit(self._add(name, version, directory), self._retries.count)

    def set_unavailable_reason(self, name: str, error: TpuserveError) -> None:
        """Record why no version of a model can be found; the status of the model has the reason."""
        with self._condition:
            self._unavailable_reasons[name] = error
            self._condition.notify_all()

    def unavailable_reason(self, name: str) -> TpuserveError | None:
        """Return why no version of a model can be found; None if there is no such reason."""
        return self._unavailable_reasons.get(name)

    def set_version_labels(self, name: str, labels: Mapping[str, int]) -> None:
        """Replace all version labels of a model; `labels` is label → version."""
        self._labels[name] = dict(labels)

    def version_labels(self, name: str) -> Mapping[str, int]:
        """Return the version labels of a model: label → version."""
        return self._labels.get(name, {})

    def get_servable_handle(
        self,
        name: str,
        version: int | None = None,
        label: str | None = None,
        *,
        must_be_loaded: bool = False,
    ) -> ServableHandle:
        """Return a context manager that keeps a version loaded.

        Entering the context manager raises ModelNotFound if no such version is available, and
        InvalidInput if the model has no such label.

        Args:
          version: the number of the version; None for the latest available version.
          must_be_loaded: whether to raise ModelNotFound for a version that is not in memory,
            instead of loading it.
        """
        find = self._acquire if must_be_loaded else self._find
        return ServableHandle(find, name, version, label)

    def names(self) -> list[str]:
        """Return the sorted names of all models that the manager knows.

        These are the models that have or had versions, and those whose versions cannot be found.
        """
        with self._condition:
            return sorted({*self._servables, *self._unavailable_reasons})

    def status(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """Return the status of one version; if `version` is None, of all versions, newest first.

        Versions that were unloaded or have failed have a status too.
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
        """Return whether a version can answer requests; if `version` is None, whether any can.

        A version that the first request will load can.
        """
        return any(
            self._can_answer(servable) and version in (None, servable.version)
            for servable in self._servables.get(name, ())
        )

    def unload_idle(self, name: str) -> bool:
        """Begin to unload a model, which a request can load again; return False if it is used."""
        with self._condition:
            loaded = [
                servable
                for servable in self._servables.get(name, ())
                if servable.state is State.AVAILABLE
            ]
            if self._is_closed or any(servable.is_used for servable in loaded):
                return False
            self._evicted.update(loaded)
            for servable in loaded:
                self._begin_unload(servable)
            return True

    def wait(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Wait until a condition on the states of versions holds."""
        with self._condition:
            return self._condition.wait_for(is_done, timeout_seconds)

    def matches_aspired(self, name: str) -> bool:
        """Return whether an aspired version of a model is available.

        The result is False if the model's base path could not be read.
        """
        with self._condition:
            return name not in self._unavailable_reasons and self._is_any_aspired_available(name)

    def is_converged(self, name: str) -> bool:
        """Return whether no version of a model is loading or waits for a retry of its load."""
        with self._condition:
            return self._is_converged(name)

    def has_failed_download(self, name: str) -> bool:
        """Return whether the last download of any version of a model has failed.

        The manager retries such a download.
        """
        with self._condition:
            return any(servable.name == name for servable in self._failed_downloads)

    def close(self, timeout_seconds: float) -> bool:
        """Unload all versions of all models, and load no further versions.

        Args:
          timeout_seconds: the longest wait for requests in flight, in seconds.
        """
        with self._condition:
            self._is_closed = True
            timers, servables = dict(self._timers), self._all()
        if self._residency is not None:
            self._residency.close()
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
        """Start to load a version, in another thread, now or when the residency says so."""
        if self._residency is None:
            self._start(servable, tries_left)
            return
        if self._residency.is_lazy(servable.name):
            tries_left = 0  # A request tries again.
        self._residency.admit(
            servable,
            partial(self._start, servable, tries_left),
            partial(self._refuse, servable),
        )

    def _start(self, servable: Servable, tries_left: int) -> None:
        """Start to load a version, in another thread; first download it if it is remote."""
        if self._downloads_first(servable):
            self._downloads.run_soon(self._download, servable, tries_left)
        else:
            self._loads.run_soon(self._load, servable, tries_left)

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
                self._submit(servable, tries_left)

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
            error = CodedError(
                f"{servable} cannot be downloaded: {type(error).__name__}", Code.INTERNAL
            )
        error.__traceback__ = error.__cause__ = error.__context__ = None
        is_lazy = self._residency is not None and self._residency.is_lazy(servable.name)
        if is_lazy or isinstance(error, ModelFileRefused):
            logger.error("%s: cannot be loaded: %s", servable, error)
            servable.mark_failed(error)
            return
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
            # Hold the lock from this check until the new state is set.
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
        # Delete the traceback, because the error is kept and the frames of its traceback would keep
        # the data of the failed load in memory.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        logger.error("%s: cannot be loaded: %s", servable, error)

        with self._condition:
            if servable not in self._leases:
                # The version is local: remember the state of its files, to load it again when they
                # have changed. The files of a downloaded version never change.
                self._fingerprints[servable] = (fingerprint, fingerprint)
            is_last = tries_left <= 0 or self._is_closed or not self._is_aspired(servable)
            servable.mark_failed(error, is_final=is_last)
            if not is_last:
                self._retry_later(servable, error, tries_left - 1, self._retries.interval_seconds)

    def _refuse(self, servable: Servable, error: TpuserveError) -> None:
        """End a version with an error, before its load."""
        assert servable.directory is not None
        fingerprint = directory_fingerprint.directory_fingerprint(servable.directory)
        self._handle_failure(servable, error, fingerprint, 0)

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
        changed = []
        for servable in self._servables.get(name, ()):
            fingerprints = self._fingerprints.get(servable)
            if fingerprints is None or servable.directory is None or not self._has_failed(servable):
                continue
            at_failure, at_last_poll = fingerprints
            now = directory_fingerprint.directory_fingerprint(servable.directory)
            # Load the version again only if its files are equal at two polls in a row: a directory
            # that is still being copied would fail again.
            if now != at_failure and now == at_last_poll:
                changed.append(servable)
            self._fingerprints[servable] = (at_failure, now)
        return changed

    def _has_failed(self, servable: Servable) -> bool:
        return servable.state is State.END or servable in list(self._timers.values())

    def _unload_superseded(self, name: str) -> None:
        for servable in self._find_superseded(name):
            self._begin_unload(servable)

    def _find_superseded(self, name: str) -> list[Servable]:
        """Return the available versions to unload, because they are not aspired any more."""
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
            self._unloads.run_soon(self._finish_unload, servable)

    def _finish_unload(self, servable: Servable) -> None:
        with self._during_move():
            try:
                servable.finish_unload()
            except Exception:
                logger.exception("%s: cannot be closed", servable)
            self._after_unload()

    def _is_aspired(self, servable: Servable) -> bool:
        return self._aspired.get(servable.name, {}).get(servable.version) == servable.directory

    def _is_any_aspired_available(self, name: str) -> bool:
        return any(
            self._can_answer(servable) and self._is_aspired(servable)
            for servable in self._servables.get(name, ())
        )

    def _can_answer(self, servable: Servable) -> bool:
        if servable.state is State.AVAILABLE:
            return True
        is_lazy = self._residency is not None and self._residency.is_lazy(servable.name)
        return is_lazy and servable.error is None and self._is_aspired(servable)

    def _is_converged(self, name: str) -> bool:
        return not any(
            servable.state in _LOADING and not servable.is_dormant
            for servable in self._servables.get(name, ())
        )

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
        # The new servable replaces a servable of the same version that was unloaded or has failed.
        # A servable that still runs requests stays in the list.
        others = [
            other
            for other in self._servables.get(name, ())
            if not (other.version == version and other.state in ended)
        ]
        for replaced in set(self._servables.get(name, ())) - set(others):
            self._fingerprints.pop(replaced, None)
        # `sorted` is stable, so the new servable comes before another servable of the same version.
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
                if servable in self._evicted:
                    self._evicted.remove(servable)
                    self._list_again(servable)
        if self._residency is not None:
            self._residency.note_change(servable, state)
        self._on_change(servable, state)
        with self._condition:
            self._condition.notify_all()

    def _list_again(self, servable: Servable) -> None:
        """List a version that was unloaded for another model, for the next request to load."""
        name, version, directory = servable.name, servable.version, servable.directory
        assert directory is not None
        if (
            not self._is_closed
            and self._is_aspired(servable)
            and not self._is_loading_or_available(name, version, directory)
        ):
            self._submit(self._add(name, version, directory), self._retries.count)

    def _acquire_or_load(self, name: str, version: int | None, label: str | None) -> Servable:
        try:
            return self._acquire(name, version, label)
        except ModelNotFound:
            # Most requests wait in the queue of their model until it is loaded. This one did not:
            # its thread waits.
            assert self._residency is not None
            if not self._residency.load(name):
                raise
        return self._acquire(name, version, label)

    def _acquire(self, name: str, version: int | None, label: str | None) -> Servable:
        if label:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise InvalidInput(f"Unrecognized servable version label: {label}")
        while True:
            servables = self._servables.get(name, ())
            for servable in servables:
                if (version is None or version == servable.version) and servable.try_acquire():
                    return servable
            # A version can become available just after its `try_acquire` has failed. So try again
            # if the list of servables has changed, or if a version is available now.
            if servables is self._servables.get(name, ()) and not any(
                servable.state is State.AVAILABLE and version in (None, servable.version)
                for servable in servables
            ):
                break
        request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        is_dormant = any(servable.is_dormant for servable in self._servables.get(name, ()))
        reason = ". It is not in memory: a request that runs the model loads it" * is_dormant
        raise ModelNotFound(f"Servable not found for request: {request}{reason}")


def statuses(manager: Manager, names: Iterable[str]) -> dict[str, list[VersionStatus]]:
    """Return model name → statuses of its versions, newest first.

    The list of a model is empty if the manager knows no version of the model.
    """
    statuses_by_name = {}
    for name in names:
        try:
            statuses_by_name[name] = manager.status(name)
        except ModelNotFound:
            statuses_by_name[name] = []
    return statuses_by_name
