"""Decides which models are in memory: loads them on request, within a limit of their memory."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial

from server.admission import nonblocking
from server.metrics import Metrics
from server.models.load_order import LoadControl, LoadOrder
from server.models.model_table import Model, ModelTable, Phase, Version
from server.process.alarm import Alarm
from server.scheduling.request_queues import RequestQueues
from server.servables.servable import Servable, State
from tpuserve.errors import Code, CodedError, TpuserveError, Unavailable

# How often a load that waits for memory looks whether a model has become idle, in seconds.
_BLOCKED_SECONDS = 0.1

logger = logging.getLogger(__name__)


class Residency:
    """Lets the manager load a lazy model when a request needs it, and unload it for another.

    All decisions are made in one thread, by `step`. A request for a model that is not in memory
    waits in the queue of the model, and occupies no thread. Models that are not lazy load at once,
    and stay. The least recently used lazy model is unloaded when another does not fit into the
    limit, but never while requests use it.

    Args:
      limit_bytes: the memory that all loaded versions may need, in bytes; 0 for no limit.
      timeout_seconds: the longest wait of a request for its model, in seconds; 0 for no limit.
      pause_seconds: the time after a failed load until a request may try the next, in seconds.
      estimate: takes a version, and returns the bytes of memory that it needs when it is loaded.
      check: takes a version that is not loaded yet, and raises the errors that its files show.
    """

    def __init__(
        self,
        limit_bytes: int = 0,
        timeout_seconds: float = 0,
        pause_seconds: float = 0,
        *,
        estimate: Callable[[Servable], int] = lambda servable: 0,
        check: Callable[[Servable], None] = lambda servable: None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.timeout_seconds = timeout_seconds or math.inf
        self._pause_seconds = pause_seconds
        self._estimate, self._check = estimate, check
        self._clock = clock
        self._table = ModelTable(limit_bytes)
        self._condition = self._table.condition
        self._order = LoadOrder(self._table, estimate, metrics or Metrics(), clock)
        self._unchecked: deque[Servable] = deque()
        self._alarm = Alarm(self.step, "residency", clock)

    def start(self, manager: LoadControl) -> None:
        """Start the thread that makes the decisions."""
        self._order.manager = manager
        self._alarm.start()

    def attach(self, queues: RequestQueues) -> None:
        """Hold the requests of the models that are not in memory in these queues."""
        self._order.queues = queues
        with self._condition:
            self._table.changed.update(dict.fromkeys(self._table.models))
        self._poke()

    def configure(self, lazy: Collection[str]) -> None:
        """Replace the names of the models that are loaded on request; all others load at once."""
        table = self._table
        with self._condition:
            switched = table.lazy.symmetric_difference(lazy) & table.models.keys()
            table.lazy = frozenset(lazy)
            for name in switched:
                table.changed[name] = None
                if name not in table.lazy and table.models[name].find(Phase.PENDING):
                    table.wishes[name] = None
        self._poke()

    def is_lazy(self, name: str) -> bool:
        """Return whether a model is loaded by a request, and may be unloaded for another model."""
        return self._table.is_lazy(name)

    def loaded_bytes(self) -> Mapping[str, int]:
        """Return model name → the memory that its loaded versions need, by their estimates."""
        with self._condition:
            sizes = {name: model.count_bytes() for name, model in self._table.models.items()}
        return {name: num_bytes for name, num_bytes in sizes.items() if num_bytes}

    def admit(
        self,
        servable: Servable,
        start: Callable[[], None],
        refuse: Callable[[TpuserveError], None],
    ) -> None:
        """Take over a version that is to be loaded.

        Args:
          start: begins the load.
          refuse: ends the version with an error instead.
        """
        table, name = self._table, servable.name
        with self._condition:
            model = table.models.setdefault(name, Model())
            model.versions[servable] = Version(start, refuse)
            model.failure = None
            if not table.is_lazy(name) or model.is_wanted or model.is_open:
                table.wishes[name] = None
            else:
                self._unchecked.append(servable)
            table.changed[name] = None
        self._poke()

    def withdraw(self, servable: Servable) -> bool:
        """Forget a version whose load has not begun; return False if it has."""
        with self._condition:
            model = self._table.models.get(servable.name)
            if model is None or servable not in model.find(Phase.PENDING):
                return False
            del model.versions[servable]
            self._table.changed[servable.name] = None
        self._poke()
        return True

    def note_change(self, servable: Servable, state: State) -> None:
        """Record the new state of a version. Must be called after each change."""
        with self._condition:
            model = self._table.models.get(servable.name)
            version = None if model is None else model.versions.get(servable)
            if model is None or version is None:
                return
            if state is State.AVAILABLE:
                version.phase = Phase.LOADED
            elif state is State.UNLOADING:
                version.phase = Phase.UNLOADING
            elif state is State.END:
                del model.versions[servable]
                if servable.error is not None:
                    model.failure = servable.error
                    model.retry_at = self._clock() + self._pause_seconds
            else:
                return
            self._table.changed[servable.name] = None
        self._poke()

    def request(self, model: str) -> TpuserveError | None:
        """Begin to load a model; return why its requests must not wait, or None if they must."""
        with self._condition:
            refusal = self._request(model)
        self._poke()
        return refusal

    def timeout_error(self, model: str) -> TpuserveError:
        """Return the error of a request that has waited for `timeout_seconds`."""
        with self._condition:
            known = self._table.models.get(model)
            pending = {} if known is None else known.find(Phase.PENDING)
            if pending and self._table.limit_bytes:
                need = sum(version.num_bytes for version in pending.values())
                return self._table.busy_error(model, need)
        return Unavailable(
            f"model {model} is still being loaded after {self.timeout_seconds:g} s, its "
            f"--lazy_load_timeout. Send the request again later."
        )

    def load(self, name: str) -> bool:
        """Load a lazy model, and wait until it is in memory.

        Returns:
          Whether the model is in memory; False at once for an unknown model.

        Raises:
          WouldBlock: the calling thread must not wait.
          TpuserveError: the model cannot be loaded, or not within `timeout_seconds`.
        """
        models = self._table.models
        with self._condition:
            model = models.get(name)
            if model is None or model.is_open or not self.is_lazy(name):
                return model is not None and model.is_open
            if not nonblocking.blocking_allowed():
                raise nonblocking.WouldBlock
            refusal = self._request(name)
            if refusal is not None:
                raise refusal
            self._poke()
            model.callers += 1
            try:
                is_over = self._condition.wait_for(
                    lambda: model.is_open or model.failure or models.get(name) is not model,
                    None if self.timeout_seconds == math.inf else self.timeout_seconds,
                )
            finally:
                model.callers -= 1
            if model.failure is not None and not model.is_open:
                raise self._failure_error(name, model)
        if not is_over:
            raise self.timeout_error(name)
        return model.is_open

    def step(self) -> float:
        """Let the changes since the last call take effect: open queues, begin loads, make room.

        Only one thread may call the method at a time.

        Returns:
          When to call the method again, in seconds of the clock; infinite for after a change.
        """
        while (name := self._next_changed()) is not None:
            self._settle(name)
        is_blocked = self._order.begin_loads()
        if self._check_next() or self._table.changed:
            return self._clock()
        return self._clock() + _BLOCKED_SECONDS if is_blocked else math.inf

    def close(self) -> None:
        """End the thread that makes the decisions."""
        self._alarm.close()

    def _poke(self) -> None:
        self._alarm.set(-math.inf)

    def _request(self, name: str) -> TpuserveError | None:
        model = self._table.models.get(name)
        if model is None or model.is_open:
            return None
        if model.failure is not None:
            if self._clock() < model.retry_at:
                return self._failure_error(name, model)
            model.failure, model.must_retry = None, True
        model.is_wanted = True
        self._table.wishes[name] = None
        return None

    def _failure_error(self, name: str, model: Model) -> TpuserveError:
        seconds = max(0, math.ceil(model.retry_at - self._clock()))
        return Unavailable(
            f"model {name} cannot be loaded: {model.failure} The server tries again when its files "
            f"change, or at the first request after {seconds} s."
        )

    def _next_changed(self) -> str | None:
        with self._condition:
            name = next(iter(self._table.changed), None)
            if name is not None:
                del self._table.changed[name]
            return name

    def _settle(self, name: str) -> None:
        """Hold or open the queue of a model whose versions have changed."""
        queues = self._order.queues
        with self._condition:
            model = self._table.models.get(name)
            if model is None:
                return
            is_loading = bool(model.find(Phase.LOADING))
            if not model.find(Phase.LOADED):
                model.is_open = False
            elif not model.is_open and not is_loading:
                # A version that was listed meanwhile does not count: it may not fit beside this.
                model.is_open, model.is_wanted = True, False
                model.failure, model.opened_at = None, self._clock()
            is_busy = is_loading or (model.is_wanted and model.find(Phase.PENDING))
            is_known = bool(model.versions) or model.failure is not None or model.must_retry
            is_held = self.is_lazy(name) and is_known and not model.is_open
            has_failed = is_held and not is_busy and model.failure is not None
            if has_failed:
                model.is_wanted = False
            if not is_known:
                del self._table.models[name]
            self._condition.notify_all()
        if not is_held:
            queues.open(name)
            return
        queues.hold(name)
        if has_failed:
            queues.refuse_waiting(name, partial(self._failure_error, name, model))

    def _check_next(self) -> bool:
        """Check a version that is not to be loaded yet; return whether there was one."""
        table = self._table
        with self._condition:
            if not self._unchecked:
                return False
            servable = self._unchecked.popleft()
            model = table.models.get(servable.name)
            version = None if model is None else model.find(Phase.PENDING).get(servable)
        if version is None:
            return True
        try:
            version.num_bytes = self._estimate(servable)
            if table.limit_bytes and version.num_bytes > table.limit_bytes:
                raise table.too_large_error(servable.name, version.num_bytes)
            self._check(servable)
        except TpuserveError as error:
            version.refuse(error)
        except Exception as error:
            logger.exception("%s: cannot be checked", servable)
            version.refuse(CodedError(f"{servable} cannot be checked: {error}", Code.INTERNAL))
        else:
            servable.mark_dormant()
        return True
