"""The queues of all models, and the choice of the request that runs next."""

import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import takewhile

from server.metrics import Metrics
from server.metrics.family import Labels
from server.scheduling.model_queue import ModelQueue
from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunPool, Ticket
from tpuserve.errors import QueueFull, WaitedTooLong

FindLimits = Callable[[str], RunLimits | None]

# The key of the one queue for requests that run no model or name a model that is not configured.
# Otherwise clients, who choose the names in requests, could create any number of queues. The queue
# has no limit of its own, because these requests compute nothing.
_OTHERS = ""
# How far the virtual time of a busy model may lag behind the virtual times of other models, in
# seconds. The virtual time of a model that its own `max_concurrent_runs` holds back lags ever more.
# Without this bound, the model would keep all others from the threads once that limit was raised,
# until its virtual time had caught up.
_MAX_CREDIT_SECONDS = 1.0


class RequestQueues:
    """Decides when the requests of all frontends run. Thread-safe.

    A frontend submits a request with a ticket. The request runs at once in the thread that submits
    it, unless its model or its frontend runs as many requests as it may. Otherwise the request
    waits in the queue of its model, and `finish` or `Ticket.start` passes it to a thread.
    """

    def __init__(
        self,
        find_limits: FindLimits = lambda model: None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the queues without a request.

        Args:
          find_limits: takes a model's name, and returns its limits, or None if no such model is
            configured.
          metrics: records the refusals, and exports how many requests wait; None for no metrics.
          clock: returns seconds, as `time.monotonic` does.
        """
        self._find_limits = find_limits
        self._metrics = Metrics() if metrics is None else metrics
        self._clock = clock
        self._queues = {_OTHERS: ModelQueue(_OTHERS, RunLimits(max_concurrent_runs=sys.maxsize))}
        # The queues in which at least one request waits.
        self._backlog: dict[ModelQueue, None] = {}
        # The virtual time of the model whose request began to run last. When an idle model gets its
        # next request, its virtual time is raised to this value. Otherwise its virtual time would
        # be the least one for long, and it would hold up all other models.
        self._virtual_time = 0.0
        self._last_number = 0
        # Requests acquire `_lock` directly, because acquiring it through `_condition` takes longer.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._watcher: threading.Thread | None = None
        self._next_check = math.inf
        self._is_closed = False
        self._metrics.watch_queue(self.count_waiting)

    def try_start(self, ticket: Ticket) -> bool:
        """Start a request unless it would have to wait.

        Returns:
          Whether the calling thread must run the request, and call `finish` afterwards.
        """
        with self._lock:
            return self._try_start(ticket)

    def submit(self, ticket: Ticket) -> bool:
        """Start a request, or enqueue it.

        Returns:
          Whether the calling thread must run the request, and call `finish` afterwards. Otherwise
          `Ticket.start` or `Ticket.refuse` will be called, or `finish` will return the ticket.

        Raises:
          QueueFull: the request would have to wait, and the queue of its model is full.
        """
        with self._lock:
            if self._try_start(ticket):
                return True
            queue = ticket.queue
            limits, length = queue.limits, queue.length
            if limits.max_queue is None or length < limits.max_queue:
                self._enqueue(ticket)
                return False
        self._metrics.request_shed(queue.model, "queue full")
        raise QueueFull(
            f"{length} requests for {_format_model(queue)} wait, and its max_queue is "
            f"{limits.max_queue}. Send the request again later."
        )

    def finish(self, ticket: Ticket) -> Ticket | None:
        """End a request that ran, and start the requests that may run now.

        Returns:
          A request of the same frontend, which the calling thread must run next; None if there is
          none.
        """
        now = self._clock()
        with self._lock:
            ticket.queue.end_run(ticket, now)
            if not self._backlog:
                return None
            started = self._start_waiting(now)
        return self._hand_over(started, ticket.pool)

    def withdraw(self, ticket: Ticket) -> bool:
        """Dequeue a request that is cancelled; return whether it waited and so will never run."""
        with self._lock:
            return self._remove(ticket)

    def refuse_expired(self) -> float | None:
        """Refuse the requests that have waited longer than they may.

        Returns:
          When the next request will have waited too long, in seconds of the clock; None if no
          request with a limit waits.
        """
        now = self._clock()
        with self._lock:
            expired = [ticket for queue in self._backlog for ticket in _expired(queue, now)]
            for ticket in expired:
                self._remove(ticket)
            expiries = [_next_expiry(queue) for queue in self._backlog]
            self._next_check = min(expiries, default=math.inf)
        for ticket in expired:
            queue = ticket.queue
            self._metrics.request_shed(queue.model, "waited too long")
            ticket.refuse(
                WaitedTooLong(
                    f"the request has waited for {(now - ticket.enqueued) * 1000:.0f} ms for "
                    f"{_format_model(queue)}, longer than its max_queue_ms. "
                    f"Send the request again later."
                )
            )
        return None if self._next_check == math.inf else self._next_check

    def count_waiting(self) -> Mapping[Labels, float]:
        """Return (model,) → the number of its requests that wait for a run."""
        with self._lock:
            return {(queue.model,): queue.length for queue in self._queues.values()}

    def count_in_flight(self) -> Mapping[Labels, float]:
        """Return (model,) → the number of its requests that wait or run."""
        with self._lock:
            return {(queue.model,): queue.running + queue.length for queue in self._queues.values()}

    def start(self) -> None:
        """Start the thread that refuses expired requests, unless it runs."""
        if self._watcher is not None:
            return
        self._watcher = threading.Thread(target=self._watch, name="queue-watch", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """End the thread that `start` has started."""
        with self._lock:
            self._is_closed = True
            self._condition.notify_all()
        if self._watcher is not None:
            self._watcher.join()

    def _try_start(self, ticket: Ticket) -> bool:
        queue = self._find_queue(ticket.model)
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
        """Drop the empty queues of models that are no longer configured."""
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
        limit = queue.limits.max_queue_seconds
        if limit is not None and ticket.enqueued + limit < self._next_check:
            self._next_check = ticket.enqueued + limit
            self._condition.notify()

    def _remove(self, ticket: Ticket) -> bool:
        queue = ticket.queue
        was_enqueued = queue.remove(ticket)
        if was_enqueued and not queue.waiting:
            del self._backlog[queue]
        return was_enqueued

    def _start_waiting(self, now: float) -> list[Ticket]:
        """Dequeue the requests that may run now, fairly, and count them as running."""
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

    def _hand_over(self, started: list[Ticket], pool: RunPool) -> Ticket | None:
        """Pass started requests to other threads, except the first of `pool`, which is returned."""
        own = None
        for ticket in started:
            if own is None and ticket.pool is pool:
                own = ticket
            else:
                ticket.start()
        return own

    def _watch(self) -> None:
        while not self._is_closed:
            self.refuse_expired()
            with self._lock:
                is_waiting = self._next_check < math.inf
                timeout = max(0, self._next_check - self._clock()) if is_waiting else None
                if not self._is_closed:
                    self._condition.wait(timeout)


def _start_tag(ticket: Ticket) -> tuple[float, int]:
    return ticket.queue.virtual_time, ticket.number


def _expired(queue: ModelQueue, now: float) -> list[Ticket]:
    limit = queue.limits.max_queue_seconds
    if limit is None:
        return []
    return [
        ticket
        for tickets in queue.waiting.values()
        for ticket in takewhile(lambda ticket: ticket.enqueued + limit <= now, tickets)
    ]


def _next_expiry(queue: ModelQueue) -> float:
    limit = queue.limits.max_queue_seconds
    if limit is None:
        return math.inf
    return limit + min(queue.first(pool).enqueued for pool in queue.waiting)


def _format_model(queue: ModelQueue) -> str:
    return f"model {queue.model}" if queue.model else "models that are not configured"
