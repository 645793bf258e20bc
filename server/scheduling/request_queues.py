"""Holds the queues of all models, and chooses the request that runs next."""

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple, Protocol

from server.metrics import Metrics
from server.metrics.collectors import Labels
from server.process.alarm import Alarm, log_exceptions
from server.scheduling.model_queue import ModelQueue
from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunnableTicket, RunPool, Ticket
from tpuserve.errors import Code, CodedError, QueueFull, TpuserveError, Unavailable

logger = logging.getLogger(__name__)

FindLimits = Callable[[str], RunLimits | None]

# The key of a common queue for all requests that do not run a model or whose model is not
# configured. With a queue for each unknown name, clients could create any number of queues.
_OTHERS = ""
# The largest time, in seconds, by which the virtual time of a busy model may lag behind those of
# other models. The model with the least virtual time runs next.
_MAX_CREDIT_SECONDS = 1.0


class ModelLoads(Protocol):
    """Loads the models that are not in memory, for requests that wait in `RequestQueues`.

    The queues call the methods under their lock: these must not call the queues.

    Attributes:
      timeout_seconds: the longest wait of a request for its model, in seconds; infinite for no
        limit.
    """

    timeout_seconds: float

    def is_lazy(self, name: str) -> bool:
        """Return whether a model is loaded by a request, and may be unloaded for another model."""

    def request(self, model: str) -> TpuserveError | None:
        """Begin to load a model; return why its requests must not wait, or None if they must."""

    def timeout_error(self, model: str) -> TpuserveError:
        """Return the error of a request that has waited for `timeout_seconds`."""


class Use(NamedTuple):
    """How the requests use a model.

    Attributes:
      last_started: when a request last began to run, in seconds of the queues' clock; 0 for never.
    """

    running: int
    waiting: int
    last_started: float


class RequestQueues:
    """Decides when each request of the frontends (the REST and gRPC servers) runs. Thread-safe.

    A ticket represents a request in the queues.

    Args:
      find_limits: takes a model's name, and returns how many of its requests may run and wait;
        returns None if no such model is configured.
      metrics: records how many requests wait and are refused; None for no metrics.
      loads: loads the models that `hold` holds; None if `hold` is never called.
    """

    def __init__(
        self,
        find_limits: FindLimits = lambda model: None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        loads: ModelLoads | None = None,
    ) -> None:
        self._find_limits = find_limits
        self._loads = loads
        self._metrics = Metrics() if metrics is None else metrics
        self._clock = clock
        self._queues = {_OTHERS: ModelQueue(_OTHERS, RunLimits(max_concurrent_runs=sys.maxsize))}
        # The queues in which at least one request waits. The dictionary is used as an ordered set.
        self._backlog: dict[ModelQueue, None] = {}
        # The highest virtual time at which a request of any model has begun to run. When an idle
        # model gets its next request, its virtual time is raised to this value.
        self._virtual_time = 0.0
        self._last_number = 0
        self._lock = threading.Lock()
        self._alarm = Alarm(self.refuse_expired, "queue-watch", clock)
        self._metrics.watch_queue(self.count_waiting)

    def only_waits(self, model: str) -> bool:
        """Return whether the running requests of a model only wait, as for their batch."""
        limits = self._find_limits(model)
        return limits is not None and limits.only_waits

    def try_start(self, ticket: Ticket) -> bool:
        """Start a request if it may run now; otherwise do nothing.

        Returns:
          True if the request may run: the calling thread must run it, and then call `finish`.
        """
        with self._lock:
            return self._try_start(ticket)

    def submit(self, ticket: Ticket) -> bool:
        """Start a request if it may run now; otherwise enqueue it.

        Returns:
          True if the request may run: the calling thread must run it, and then call `finish`.
          Otherwise `Ticket.start` or `Ticket.refuse` will be called, or `finish` will return the
          ticket.

        Raises:
          QueueFull: as many requests wait as may wait.
          TpuserveError: the model is not in memory, and cannot be loaded.
        """
        with self._lock:
            if self._try_start(ticket):
                return True
            queue = ticket.queue
            limits, length = queue.limits, queue.length
            if queue.is_held and self._loads is not None:
                refusal = self._loads.request(queue.model)
                if refusal is not None:
                    raise refusal
            if limits.max_queue is None or length < limits.max_queue:
                self._enqueue(ticket)
                return False
        self._metrics.request_shed(queue.model, "queue full")
        raise QueueFull(
            f"{length} requests for {_format_model(queue)} wait, and its max_queue is "
            f"{limits.max_queue}. Send the request again later."
        )

    def finish(self, ticket: Ticket) -> Ticket | None:
        """Record that a request has run, and start the waiting requests that may run now.

        Returns:
          The ticket of a request of the same frontend, which the calling thread must run next; None
          if there is no such request.
        """
        return self._hand_over(self._end_run(ticket), ticket.pool)

    def end(self, ticket: Ticket) -> None:
        """Record that a request has run, and let other threads run those that may run now."""
        self._hand_over(self._end_run(ticket), None)

    def run(self, ticket: RunnableTicket) -> None:
        """Run a request that has left its queue, and then the queued requests that may run next."""
        following: Ticket | None = ticket
        while isinstance(following, RunnableTicket):
            following.run()
            following = self.finish(following)

    def withdraw(self, ticket: Ticket) -> bool:
        """Dequeue a cancelled request.

        Returns:
          True if the request was waiting, and so will never run; False if it runs or has ended.
        """
        with self._lock:
            return self._remove(ticket)

    def hold(self, model: str, *, if_idle: bool = False) -> bool:
        """Let the further requests of a model wait until `open` is called.

        Args:
          if_idle: whether to do nothing while requests of the model run or wait.

        Returns:
          Whether the requests are held.
        """
        with self._lock:
            queue = self._find_queue(model)
            if queue.model == _OTHERS:
                return True  # The model is not configured: nothing asks for it by its name.
            if if_idle and (queue.running or queue.waiting):
                return False
            queue.is_held = True
            return True

    def open(self, model: str) -> None:
        """Let the requests of a model run, after `hold`; their wait for a run begins now."""
        now = self._clock()
        with self._lock:
            queue = self._queues.get(model)
            if queue is None or not queue.is_held:
                return
            queue.is_held = False
            queue.limits = self._find_limits(model) or queue.limits
            waiting = list(chain.from_iterable(queue.waiting.values()))
            for ticket in waiting:
                ticket.enqueued = now
            started = self._start_waiting(now)
        if waiting:
            self._alarm.set(min(map(self._expiry, waiting)))
        self._hand_over(started, None)

    def refuse_waiting(self, model: str, make_error: Callable[[], TpuserveError]) -> None:
        """Answer all waiting requests of a model with an error, of which each gets its own."""
        with self._lock:
            queue = self._find_queue(model)
            refused = list(chain.from_iterable(queue.waiting.values()))
            for ticket in refused:
                self._remove(ticket)
        for ticket in refused:
            with log_exceptions():
                ticket.refuse(make_error())

    def find_description_queue(self, model: str) -> str:
        """Return the model in whose queue a request waits that asks for the metadata of a model.

        The result is empty, for the common queue, unless the model may have to be loaded first.
        """
        return model if self._loads is not None and self._loads.is_lazy(model) else ""

    def find_use(self, model: str) -> Use:
        """Return how the requests use a model."""
        with self._lock:
            queue = self._queues.get(model)
            return Use(0, 0, 0.0) if queue is None else _use(queue)

    def refuse_expired(self) -> float:
        """Refuse the requests that have waited longer than the limit of their model.

        If a request cannot be refused, the exception is logged, and the others are still refused.

        Returns:
          The time at which the next waiting request will exceed its limit, in seconds of the clock;
          infinite if no request with such a limit waits.
        """
        now = self._clock()
        with self._lock:
            expired = [ticket for ticket in self._waiting() if self._expiry(ticket) <= now]
            for ticket in expired:
                self._remove(ticket)
            next_expiry = min(map(self._expiry, self._waiting()), default=math.inf)
        for ticket in expired:
            with log_exceptions():
                self._refuse_expired(ticket, now)
        return next_expiry

    def count_waiting(self) -> Mapping[Labels, float]:
        """Return (model,) → the number of the model's waiting requests, for the metrics."""
        with self._lock:
            return {(queue.model,): queue.length for queue in self._queues.values()}

    def count_in_flight(self) -> Mapping[Labels, float]:
        """Return (model,) → the number of the model's requests in flight, for the metrics.

        These are the requests that wait or run.
        """
        with self._lock:
            return {(queue.model,): queue.running + queue.length for queue in self._queues.values()}

    @property
    def next_expiry(self) -> float:
        """When the next check for expired requests is due, in seconds of the clock.

        Infinite if no request with a limit waits.
        """
        return self._alarm.time

    def start(self) -> None:
        """Start the thread that refuses requests after too long a wait, unless it runs already."""
        self._alarm.start()

    def close(self) -> None:
        """End the thread that `start` has started."""
        self._alarm.close()

    def _try_start(self, ticket: Ticket) -> bool:
        queue = self._find_queue(ticket.context.model)
        ticket.queue = queue
        if not queue.may_start(ticket.pool):
            return False
        self._begin_run(ticket, self._clock())
        return True

    def _find_queue(self, model: str) -> ModelQueue:
        limits = self._find_limits(model)
        if limits is None:
            return self._queues[_OTHERS]
        queue = self._queues.get(model)
        if queue is None:
            self._drop_unused_queues()
            queue = self._queues[model] = ModelQueue(model, limits)
        queue.limits = limits
        return queue

    def _drop_unused_queues(self) -> None:
        """Delete the empty queues of models that are not configured any more."""
        for model, queue in list(self._queues.items()):
            is_idle = not queue.running and not queue.waiting
            if is_idle and model != _OTHERS and self._find_limits(model) is None:
                del self._queues[model]

    def _begin_run(self, ticket: Ticket, now: float) -> None:
        queue = ticket.queue
        is_idle = not queue.running and queue not in self._backlog
        credit = 0.0 if is_idle else _MAX_CREDIT_SECONDS
        queue.virtual_time = max(queue.virtual_time, self._virtual_time - credit)
        self._virtual_time = max(self._virtual_time, queue.virtual_time)
        queue.begin_run(ticket, now)

    def _enqueue(self, ticket: Ticket) -> None:
        queue = ticket.queue
        ticket.enqueued = self._clock()
        self._last_number += 1
        ticket.number = self._last_number
        queue.push(ticket)
        self._backlog[queue] = None
        self._alarm.set(self._expiry(ticket))

    def _expiry(self, ticket: Ticket) -> float:
        """Return when a waiting request exceeds its limit, in seconds of the clock."""
        if ticket.queue.is_held and self._loads is not None:
            return ticket.enqueued + self._loads.timeout_seconds
        limit = ticket.queue.limits.max_queue_seconds
        return math.inf if limit is None else ticket.enqueued + limit

    def _waiting(self) -> Iterator[Ticket]:
        for queue in self._backlog:
            yield from chain.from_iterable(queue.waiting.values())

    def _refuse_expired(self, ticket: Ticket, now: float) -> None:
        if ticket.queue.is_held and self._loads is not None:
            self._metrics.request_shed(ticket.queue.model, "not loaded in time")
            ticket.refuse(self._loads.timeout_error(ticket.queue.model))
            return
        self._metrics.request_shed(ticket.queue.model, "waited too long")
        ticket.refuse(
            CodedError(
                f"the request has waited for {(now - ticket.enqueued) * 1000:.0f} ms for "
                f"{_format_model(ticket.queue)}, longer than its max_queue_ms. Send the request "
                f"again later.",
                Code.UNAVAILABLE,
            )
        )

    def _remove(self, ticket: Ticket) -> bool:
        queue = ticket.queue
        was_enqueued = queue.remove(ticket)
        if was_enqueued and not queue.waiting:
            del self._backlog[queue]
        return was_enqueued

    def _end_run(self, ticket: Ticket) -> list[Ticket]:
        """Record that a request has run, and dequeue the requests that may run now."""
        now = self._clock()
        with self._lock:
            ticket.queue.end_run(ticket, now)
            return self._start_waiting(now) if self._backlog else []

    def _start_waiting(self, now: float) -> list[Ticket]:
        """Dequeue the requests that may run now, in fair order, and record that they run."""
        started = []
        while (ticket := self._next_ticket()) is not None:
            self._begin_run(ticket, now)
            self._remove(ticket)
            started.append(ticket)
        return started

    def _next_ticket(self) -> Ticket | None:
        tickets = [
            queue.first(pool)
            for queue in self._backlog
            for pool in queue.waiting
            if queue.may_start(pool)
        ]
        return min(tickets, key=_start_tag, default=None)

    def _hand_over(self, started: list[Ticket], pool: RunPool | None) -> Ticket | None:
        """Pass started requests to other threads, except the first one of `pool`."""
        own = None
        while started:
            failed = []
            for ticket in started:
                if own is None and ticket.pool is pool:
                    own = ticket
                elif not _start(ticket):
                    failed.append(ticket)
            if not failed:
                break
            now = self._clock()
            with self._lock:
                for ticket in failed:
                    ticket.queue.end_run(ticket, now)
                started = self._start_waiting(now)
        return own


def _start(ticket: Ticket) -> bool:
    """Start a request; refuse it and return False if its frontend cannot, as after a shutdown."""
    try:
        ticket.start()
    except Exception as error:
        logger.exception("a request cannot be run")
        with log_exceptions():
            ticket.refuse(
                Unavailable(f"the request cannot be run: {error}. Send the request again later.")
            )
        return False
    return True


def _start_tag(ticket: Ticket) -> tuple[float, int]:
    return ticket.queue.virtual_time, ticket.number


def _use(queue: ModelQueue) -> Use:
    return Use(queue.running, queue.length, queue.last_started)


def _format_model(queue: ModelQueue) -> str:
    return f"model {queue.model}" if queue.model else "models that are not configured"
