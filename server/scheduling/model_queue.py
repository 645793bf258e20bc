"""The queue of one model: its waiting requests, and the time that its runs have taken."""

from collections import OrderedDict

from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunPool, Ticket

# The weight of the last run in the moving average of a model's run times.
_LAST_RUN_WEIGHT = 0.1


class ModelQueue:
    """The requests of one model. Only `RequestQueues` changes the object, under its lock.

    Models share the threads by start-time fair queuing: a model's virtual time grows with the time
    that its runs take, and of the models with a request that could run, the one with the least
    virtual time runs next. Source: Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996.

    Attributes:
      model: the name of the model.
      limits: the current limits of the model.
      running: the number of requests that run.
      virtual_time: the model's virtual time, in seconds; the paper calls it the start tag of the
        next request.
      waiting: `RunPool` (threads of a frontend) → the requests that wait for these threads, in the
        order of their arrival. A pool for which no request waits has no entry.
    """

    __slots__ = (
        "_expected_seconds",
        "_running_in_shares",
        "limits",
        "model",
        "running",
        "virtual_time",
        "waiting",
    )

    def __init__(self, model: str, limits: RunLimits) -> None:
        """Create the queue of a model without requests."""
        self.model = model
        self.limits = limits
        self.running = 0
        self.virtual_time = 0.0
        self.waiting: dict[RunPool, OrderedDict[Ticket, None]] = {}
        self._expected_seconds = 0.0
        # For each RunPool whose `share` is less than 1: the number of the model's requests that run
        # in the pool.
        self._running_in_shares: dict[RunPool, int] = {}

    @property
    def length(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self.waiting.values()))

    def may_start(self, pool: RunPool) -> bool:
        """Return whether a request of the model may run in a frontend's threads now.

        If no request of the model runs, one request of the model may always start, even if the
        frontend already runs `RunPool.max_running` requests. Otherwise a few slow models could
        block all others.
        """
        if not self.running:
            return True
        limits = self.limits
        return (
            self.running < limits.max_concurrent_runs
            and (pool.running < pool.max_running or limits.only_waits)
            and (pool.share == 1 or self._has_share(pool))
        )

    def push(self, ticket: Ticket) -> None:
        """Enqueue a request."""
        self.waiting.setdefault(ticket.pool, OrderedDict())[ticket] = None

    def first(self, pool: RunPool) -> Ticket:
        """Return the request that waits longest for a frontend's threads."""
        return next(iter(self.waiting[pool]))

    def remove(self, ticket: Ticket) -> bool:
        """Dequeue a request; return whether it was enqueued."""
        tickets = self.waiting.get(ticket.pool)
        if tickets is None or ticket not in tickets:
            return False
        del tickets[ticket]
        if not tickets:
            del self.waiting[ticket.pool]
        return True

    def begin_run(self, ticket: Ticket, now: float) -> None:
        """Count a request as running, and add the expected time of its run to `virtual_time`."""
        ticket.started = now
        self.running += 1
        if ticket.pool.share < 1:
            self._count_in_share(ticket.pool, 1)
        if not self.limits.only_waits:
            ticket.pool.running += 1
            ticket.charge = self._expected_seconds
            self.virtual_time += self._expected_seconds

    def end_run(self, ticket: Ticket, now: float) -> None:
        """Count a request as ended, and correct `virtual_time` by the real time of the run."""
        self.running -= 1
        if ticket.pool.share < 1:
            self._count_in_share(ticket.pool, -1)
        if ticket.charge is not None:
            ticket.pool.running -= 1
            seconds = now - ticket.started
            self.virtual_time += seconds - ticket.charge
            previous = self._expected_seconds or seconds
            self._expected_seconds = previous + (seconds - previous) * _LAST_RUN_WEIGHT

    def _has_share(self, pool: RunPool) -> bool:
        running = self._running_in_shares.get(pool, 0)
        return running < max(1, int(self.limits.max_concurrent_runs * pool.share))

    def _count_in_share(self, pool: RunPool, change: int) -> None:
        self._running_in_shares[pool] = self._running_in_shares.get(pool, 0) + change
