"""From the versions that are wanted to the versions that are loaded."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType

from server.config.settings import LOAD_THREADS
from server.models.servable_loader import Loading, MakeRunner, Retries, WarmUp, may_pass
from server.servables import directory_fingerprint
from server.servables.directory_fingerprint import Fingerprint
from server.servables.servable import Load, Servable, State, VersionStatus
from tpuserve.errors import LabelNotFound, ModelNotFound, TpuserveError

_UNSETTLED = (State.START, State.LOADING)
_UNLOAD_THREADS = 4
_NO_RETRIES = Retries()

logger = logging.getLogger(__name__)


class Use:
    """A version of a model, not unloaded while the block runs."""

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
        self._servable = self._find(self._name, self._version, self._label)
        return self._servable

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._servable.release()


class Manager:
    """The servables of all models.

    Its policy is to stay available: a new version is loaded before an old one goes, and an old
    one is closed when the last request that uses it has finished. Loads and unloads run in
    threads of their own, so that neither a request nor another model waits for them.
    """

    def __init__(
        self,
        load: Load,
        *,
        make_runner: MakeRunner = lambda model, directory, name: model,
        warm_up: WarmUp | None = None,
        retries: Retries = _NO_RETRIES,
        load_threads: int = 0,
        unload_threads: int = 0,
        on_change: Callable[[Servable, State], None] = lambda servable, state: None,
        moving: Callable[[], AbstractContextManager[None]] = nullcontext,
        after_unload: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes what turns a version's directory into a model.

        Args:
          make_runner, warm_up: see `Loading`.
          load_threads, unload_threads: how many loads, or unloads, run at once; 0 for a few.
          on_change: called with each new state of a version.
          moving: entered for each load and each unload, also several at once.
          after_unload: called once the memory of a version can be had back.
        """
        self._loading = Loading(load, make_runner, warm_up)
        self._retries = retries
        self._tell_change = on_change
        self._moving = moving
        self._after_unload = after_unload
        self._aspired: dict[str, dict[int, Path]] = {}
        # Newest version first. Replaced as a whole, so that requests read them without a lock.
        self._servables: dict[str, tuple[Servable, ...]] = {}
        self._labels: dict[str, Mapping[str, int]] = {}
        self._reasons: dict[str, TpuserveError] = {}
        self._looks: dict[Servable, tuple[Fingerprint, Fingerprint]] = {}
        self._timers: dict[threading.Timer, Servable] = {}
        self._is_closed = False
        self._changed = threading.Condition(threading.RLock())
        self._loads = ThreadPoolExecutor(load_threads or LOAD_THREADS, "load")
        self._unloads = ThreadPoolExecutor(unload_threads or _UNLOAD_THREADS, "unload")

    def aspire(self, name: str, versions: Mapping[int, Path]) -> None:
        """Makes exactly these versions of a model the loaded ones, and blocks until that is so.

        A version that fails to load ends with its error in the status, and is not tried again
        until it has been left out once or its files have changed; while none of the wanted
        versions is available the old ones stay.
        """
        self.begin(name, versions)
        with self._changed:
            # A version that has just become available has yet to end the one that it supersedes.
            self._changed.wait_for(
                lambda: self._is_settled(name, State.UNLOADING) and not self._superseded(name)
            )

    def begin(self, name: str, versions: Mapping[int, Path]) -> None:
        """Does what `aspire` does and does not wait for it."""
        mended = self._mended(name)
        with self._changed:
            self._reasons.pop(name, None)
            known = self._aspired.get(name, {})
            self._aspired[name] = dict(versions)
            for timer, servable in list(self._timers.items()):
                is_gone = servable.name == name and not self._is_wanted(servable)
                if not (is_gone or servable in mended) or self._is_closed:
                    continue
                timer.cancel()
                del self._timers[timer]
                if is_gone:
                    # Nobody is to wait for its next try.
                    servable.cancelled()
                else:
                    # Its time of waiting is over as soon as it may have become another.
                    self._loads.submit(self._load, servable, self._retries.count)
            for version in sorted(versions, reverse=True):
                directory = versions[version]
                again = any(version == each.version for each in mended)
                if (again or known.get(version) != directory) and not self._has(
                    name, version, directory
                ):
                    servable = self._add(name, version, directory)
                    if not self._is_closed:
                        self._loads.submit(self._load, servable, self._retries.count)
            self._unload_superseded(name)

    def explain(self, name: str, error: TpuserveError) -> None:
        """Keeps why nothing is known of a model's versions, for its status."""
        with self._changed:
            self._reasons[name] = error
            self._changed.notify_all()

    def reason(self, name: str) -> TpuserveError | None:
        """What `explain` has kept, until the model's versions are known again."""
        return self._reasons.get(name)

    def label(self, name: str, labels: Mapping[str, int]) -> None:
        """Gives versions of a model these labels in the place of all that they had."""
        self._labels[name] = dict(labels)

    def labels(self, name: str) -> Mapping[str, int]:
        """Label → version."""
        return self._labels.get(name, {})

    def use(self, name: str, version: int | None = None, label: str | None = None) -> Use:
        """A version of a model as a context; the latest where neither version nor label is asked.

        Entering it raises:
          ModelNotFound: there is no such model or version, or it is not available.
          LabelNotFound: no version has that label.
        """
        return Use(self._acquire, name, version, label)

    def names(self) -> list[str]:
        """The models that are wanted or were, sorted."""
        with self._changed:
            return sorted({*self._servables, *self._reasons})

    def status(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """The status of every version that was ever aspired, or of one; newest first.

        Raises:
          ModelNotFound: no version of the model is known, or not that one.
        """
        found = self._servables.get(name, ())
        if not found:
            reason = self._reasons.get(name)
            why = f": {reason}" if reason else ""
            raise ModelNotFound(f"Could not find any versions of model {name}{why}")
        if version is None:
            return [each.status for each in found]
        for each in found:
            if each.version == version:
                return [each.status]
        raise ModelNotFound(f"Could not find version {version} of model {name}")

    def is_available(self, name: str, version: int | None = None) -> bool:
        """Whether a version of a model, or any, answers requests."""
        return any(
            each.state is State.AVAILABLE and version in (None, each.version)
            for each in self._servables.get(name, ())
        )

    def wait(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Blocks until a condition on the versions' states holds; whether it does."""
        with self._changed:
            return self._changed.wait_for(is_done, timeout_seconds)

    def is_as_wanted(self, name: str) -> bool:
        """Whether one of the wanted versions is available, and all is known that is wanted."""
        with self._changed:
            return name not in self._reasons and any(
                each.state is State.AVAILABLE and self._is_wanted(each)
                for each in self._servables.get(name, ())
            )

    def is_settled(self, name: str) -> bool:
        """Whether each wanted version is available or has finally failed."""
        with self._changed:
            return self._is_settled(name)

    def close(self, timeout_seconds: float) -> bool:
        """Unloads everything, waiting so long at most for the requests in flight.

        Returns:
          Whether all is unloaded: a version that is still in use, or still loading, then stays.
        """
        with self._changed:
            self._is_closed = True
            timers, servables = dict(self._timers), self._all()
        for timer, servable in timers.items():
            timer.cancel()
            servable.cancelled()
        self._loads.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + timeout_seconds
        for each in servables:
            each.begin_unload()
        for each in servables:
            if each.state is State.UNLOADING:
                each.finish_unload(max(0, deadline - time.monotonic()))
        self._unloads.shutdown(wait=False, cancel_futures=True)
        return all(each.state not in (State.UNLOADING, State.LOADING) for each in servables)

    def _load(self, servable: Servable, tries_left: int) -> None:
        assert servable.directory is not None
        look = directory_fingerprint.of(servable.directory)
        with self._changed:
            # In one step: who wants it again takes what is about to end for what is being loaded.
            if not self._is_wanted(servable):
                servable.cancelled()
                return
            servable.loading()
        logger.info("%s: loading %s", servable, servable.directory)
        try:
            with self._moving():
                model, runner = self._loading.prepare(servable, servable.directory)
        except TpuserveError as error:
            self._failed(servable, error, look, tries_left if may_pass(error) else 0)
            return
        except BaseException:
            logger.exception("%s: the load was ended", servable)
            servable.cancelled()
            raise
        logger.info("%s: %s", servable, model.choice)
        servable.available(model, runner)
        with self._changed:
            if self._is_closed:
                self._begin_unload(servable)
            self._unload_superseded(servable.name)

    def _failed(
        self, servable: Servable, error: TpuserveError, look: Fingerprint, tries_left: int
    ) -> None:
        # The frames of the failed load would keep what it has read in memory.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        logger.error("%s: cannot be loaded: %s", servable, error)

        def again() -> None:
            with self._changed:
                if self._timers.pop(timer, None) is None:
                    return
                if self._is_closed:
                    servable.failed(error)
                else:
                    self._loads.submit(self._load, servable, tries_left - 1)

        timer = threading.Timer(self._retries.interval_seconds, again)
        timer.daemon = True
        with self._changed:
            self._looks[servable] = (look, look)
            is_last = tries_left <= 0 or self._is_closed or not self._is_wanted(servable)
            servable.failed(error, is_final=is_last)
            if not is_last:
                self._timers[timer] = servable
                timer.start()

    def _mended(self, name: str) -> list[Servable]:
        """The versions that have failed and whose files have changed since, and are still now."""
        mended = []
        for servable in self._servables.get(name, ()):
            look = self._looks.get(servable)
            if look is None or servable.directory is None or not self._has_failed(servable):
                continue
            failed, last = look
            now = directory_fingerprint.of(servable.directory)
            # Twice the same, so that a directory that is being copied is not read in between.
            if now != failed and now == last:
                mended.append(servable)
            self._looks[servable] = (failed, now)
        return mended

    def _has_failed(self, servable: Servable) -> bool:
        """Whether nothing is done about a version that has failed, now or for good."""
        return servable.state is State.END or servable in list(self._timers.values())

    def _unload_superseded(self, name: str) -> None:
        for servable in self._superseded(name):
            self._begin_unload(servable)

    def _superseded(self, name: str) -> list[Servable]:
        """The versions that are available and not wanted, unless no other could take over."""
        aspired = self._aspired.get(name, {})
        available = [e for e in self._servables.get(name, ()) if e.state is State.AVAILABLE]
        if aspired and not any(self._is_wanted(each) for each in available):
            return []
        return [each for each in available if not self._is_wanted(each)]

    def _begin_unload(self, servable: Servable) -> None:
        if servable.begin_unload() and not self._is_closed:
            self._unloads.submit(self._finish_unload, servable)

    def _finish_unload(self, servable: Servable) -> None:
        with self._moving():
            try:
                servable.finish_unload()
            except Exception:
                logger.exception("%s: cannot be closed", servable)
            self._after_unload()

    def _is_wanted(self, servable: Servable) -> bool:
        return self._aspired.get(servable.name, {}).get(servable.version) == servable.directory

    def _is_settled(self, name: str, *also: State) -> bool:
        unsettled = (*_UNSETTLED, *also)
        return not any(each.state in unsettled for each in self._servables.get(name, ()))

    def _has(self, name: str, version: int, directory: Path) -> bool:
        return any(
            each.version == version
            and each.directory == directory
            and each.state in (State.AVAILABLE, *_UNSETTLED)
            for each in self._servables.get(name, ())
        )

    def _add(self, name: str, version: int, directory: Path) -> Servable:
        servable = Servable(name, version, directory, self._note_change)
        ended = (State.END,)
        # What is over makes room for its successor; what still runs requests stays beside it.
        others = [
            each
            for each in self._servables.get(name, ())
            if not (each.version == version and each.state in ended)
        ]
        for gone in set(self._servables.get(name, ())) - set(others):
            self._looks.pop(gone, None)
        # Of two with one number the newer comes first.
        newest_first = sorted([servable, *others], key=lambda each: -each.version)
        self._servables[name] = tuple(newest_first)
        self._note_change(servable, State.START)
        return servable

    def _all(self) -> list[Servable]:
        return [each for servables in self._servables.values() for each in servables]

    def _note_change(self, servable: Servable, state: State) -> None:
        self._tell_change(servable, state)
        with self._changed:
            self._changed.notify_all()

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
            # One may have become available behind the look at it, before the other was let go.
            if servables is self._servables.get(name, ()) and not self.is_available(name, version):
                break
        asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ModelNotFound(f"Servable not found for request: {asked}")


def statuses(manager: Manager, names: Iterable[str]) -> dict[str, list[VersionStatus]]:
    """The status of each of some models; empty for one of which no version is known."""
    found = {}
    for name in names:
        try:
            found[name] = manager.status(name)
        except ModelNotFound:
            found[name] = []
    return found
