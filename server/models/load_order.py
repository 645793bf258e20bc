"""Begins the loads that requests wait for, and unloads other models for them if memory is short."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from server.config.byte_size import format_bytes
from server.metrics import Metrics
from server.models.model_table import Model, ModelTable, Phase, Version
from server.scheduling.request_queues import RequestQueues
from server.servables.servable import Servable
from tpuserve.errors import TpuserveError

logger = logging.getLogger(__name__)


class LoadControl(Protocol):
    """What a Residency asks of the manager of the versions."""

    def retry_failed_loads(self, name: str) -> None:
        """Submit the versions of a model that have failed to load again."""

    def unload_idle(self, name: str) -> bool:
        """Begin to unload a model; return False, and do nothing, if a request uses it."""


class LoadOrder:
    """Begins the loads of the wishes in a table, in their order, within the limit of memory.

    Only one thread may call `begin_loads`, and it must not hold the condition of the table.

    Args:
      estimate: takes a version, and returns the bytes of memory that it needs when it is loaded.

    Attributes:
      manager: loads and unloads the versions; None before the server starts.
      queues: the queues in which the requests of the models wait.
    """

    def __init__(
        self,
        table: ModelTable,
        estimate: Callable[[Servable], int],
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._table = table
        self._estimate = estimate
        self._metrics = metrics
        self._clock = clock
        self.manager: LoadControl | None = None
        self.queues = RequestQueues()

    def begin_loads(self) -> bool:
        """Begin the loads that fit, and the unloads that make room for others.

        Returns:
          Whether a load waits until requests no longer use another model.
        """
        table, is_blocked = self._table, False
        with table.condition:
            free, coming = table.limit_bytes - table.count_used(), table.count_coming()
            wishes = list(table.wishes)
        for name in wishes:
            pending = self._take_wish(name)
            need = sum(version.num_bytes for version in pending.values())
            if not pending:
                continue
            if not table.limit_bytes or need <= free:
                free -= need
                self._begin(name, pending)
            elif need > table.limit_bytes:
                _refuse(pending, table.too_large_error(name, need))
            elif need <= free + coming:
                # An unload in progress makes room: keep it for this model.
                free, coming = 0, free + coming - need
                self._wish_again(name)
            elif freed := self._evict_for(name, need - free - coming):
                free, coming = 0, free + coming + freed - need
                self._wish_again(name)
            elif self._never_fits(name, need):
                _refuse(pending, self._no_room_error(name, need))
            elif not self._makes_room_by_itself(name, pending):
                self._wish_again(name)
                is_blocked = True
        return is_blocked

    def _take_wish(self, name: str) -> dict[Servable, Version]:
        """Return the versions of a model to load now, with their sizes, and forget the wish."""
        table = self._table
        with table.condition:
            table.wishes.pop(name, None)
            model = table.models.get(name)
            if model is None:
                return {}
            is_asked = not table.is_lazy(name) or model.is_open or model.callers > 0
            model.is_wanted = False
        # A request that comes from now on wishes for the model itself.
        if not is_asked and not self.queues.find_use(name).waiting:
            # All requests have left: the model is not loaded, and nothing is unloaded for it.
            with table.condition:
                pending = model.find(Phase.PENDING)
            _leave_dormant(pending)
            return {}
        with table.condition:
            model.is_wanted = not model.is_open
            must_retry, model.must_retry = model.must_retry, False
        if must_retry and self.manager is not None:
            self.manager.retry_failed_loads(name)
            with table.condition:
                table.changed[name] = None
        with table.condition:
            pending = model.find(Phase.PENDING)
        for servable, version in pending.items():
            # The files of a version that is still to be downloaded have no bytes yet.
            version.num_bytes = version.num_bytes or self._estimate(servable)
        return pending

    def _wish_again(self, name: str) -> None:
        with self._table.condition:
            self._table.wishes[name] = None

    def _begin(self, name: str, pending: Mapping[Servable, Version]) -> None:
        table = self._table
        with table.condition:
            for version in pending.values():
                version.phase = Phase.LOADING
            used = table.count_used()
        if table.is_lazy(name):
            num_bytes = sum(version.num_bytes for version in pending.values())
            logger.info(
                "%s: loading %s, because a request needs it; with it, all loaded models have %s",
                *(name, format_bytes(num_bytes), format_bytes(used)),
            )
            self._metrics.lazily_loaded(name)
        for version in pending.values():
            version.start()

    def _evict_for(self, name: str, needed: int) -> int:
        """Begin to unload the least recently used models that are idle.

        Returns:
          The bytes that this frees; 0, and nothing is unloaded, if these are less than `needed`.
        """
        victims: dict[str, int] = {}
        for victim, num_bytes in self._find_evictable(name):
            victims[victim] = num_bytes
            if sum(victims.values()) >= needed:
                freed = sum(size for each, size in victims.items() if self._evict(each, name))
                return freed if freed >= needed else 0
        return 0

    def _find_evictable(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield the other lazy models that nobody uses, the least recently used first."""
        table = self._table
        with table.condition:
            candidates = {
                other: (model, model.count_bytes())
                for other, model in table.models.items()
                if other != name
                and model.is_open
                and table.is_lazy(other)
                and not model.find(Phase.PENDING, Phase.LOADING)
                and not any(servable.is_used for servable in model.versions)
            }
        for other in sorted(candidates, key=lambda each: self._used_at(each, candidates[each][0])):
            use = self.queues.find_use(other)
            if not use.running and not use.waiting:
                yield other, candidates[other][1]

    def _used_at(self, name: str, model: Model) -> float:
        return max(self.queues.find_use(name).last_started, model.opened_at)

    def _evict(self, name: str, other: str) -> bool:
        """Begin to unload an idle model for another; return False if a request uses it."""
        with self._table.condition:
            model = self._table.models[name]
            num_bytes = model.count_bytes()
            # Close the model first: a request that is held from now on then asks for its load.
            model.is_open = False
        idle_seconds = self._clock() - self._used_at(name, model)
        if not self.queues.hold(name, if_idle=True):
            self._reopen(model)
            return False
        if self.manager is None or not self.manager.unload_idle(name):
            self._reopen(model)
            self.queues.open(name)
            return False
        logger.info(
            "%s: unloading %s to make room for %s: of the idle models, it is the least recently "
            "used, %.0f s ago",
            *(name, format_bytes(num_bytes), other, idle_seconds),
        )
        self._metrics.evicted(name)
        return True

    def _reopen(self, model: Model) -> None:
        with self._table.condition:
            model.is_open = bool(model.find(Phase.LOADED))

    def _never_fits(self, name: str, need: int) -> bool:
        """Return whether a model that is to stay in memory does not fit beside the others."""
        table = self._table
        with table.condition:
            return not table.is_lazy(name) and need > table.limit_bytes - table.count_pinned()

    def _no_room_error(self, name: str, need: int) -> TpuserveError:
        with self._table.condition:
            return self._table.no_room_error(name, need)

    def _makes_room_by_itself(self, name: str, pending: Mapping[Servable, Version]) -> bool:
        """Unload the old version of a lazy model if its new version does not fit beside it."""
        with self._table.condition:
            model = self._table.models.get(name)
            is_loaded = model is not None and model.is_open and self._table.is_lazy(name)
        if not is_loaded or not self._evict(name, "its new version"):
            return False
        _leave_dormant(pending)
        return True


def _leave_dormant(pending: Iterable[Servable]) -> None:
    for servable in pending:
        servable.mark_dormant()


def _refuse(pending: Mapping[Servable, Version], error: TpuserveError) -> None:
    for version in pending.values():
        version.refuse(error)
