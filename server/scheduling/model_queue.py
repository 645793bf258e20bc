"""The queue of one model: its waiting requests, and the time that its requests have run."""

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunPool, Ticket

Item = TypeVar("Item", bound=Hashable)


class Turns(Generic[Item]):
    """The items that wait, each with a key, such as the client of a request. Not thread-safe.

    The first item of each key comes in turn (round robin), so that many items of one key do not
    delay those of another.
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        # Key → its items, as ordered sets. The next turn is that of the first key.
        self._items: dict[Hashable, dict[Item, None]] = {}

    def __len__(self) -> int:
        """Return the number of items."""
        return sum(map(len, self._items.values()))

    def __iter__(self) -> Iterator[Item]:
        """Return an iterator over all items, key by key."""
        return chain.from_iterable(self._items.values())

    def push(self, key: Hashable, item: Item) -> None:
        """Append an item; a key without other items comes last."""
        self._items.setdefault(key, {})[item] = None

    @property
    def first(self) -> Item:
        """The item whose turn is next. There must be one."""
        return next(iter(next(iter(self._items.values()))))

    def remove(self, key: Hashable, item: Item) -> bool:
        """Remove an item, after which its key comes last; return whether it was there."""
        items = self._items.get(key)
        if items is None or item not in items:
            return False
        del items[item]
        del self._items[key]
        if items:
            self._items[key] = items
        return True


# The weight of the last request in the moving average of a model's run times. The average is the
# expected run time of the next request.
_LAST_RUN_WEIGHT = 0.1


class ModelQueue:
    """The waiting and running requests of one model.

    Not thread-safe: `RequestQueues` calls all methods under its lock.

    Models share the threads of the server by start-time fair queuing. A model's virtual time grows
    with the time that its requests run.

    Attributes:
      is_held: whether no request may start, because the model is not in memory.
      last_started: when a request of the model last began to run, in seconds of the queues' clock.
      virtual_time: the model's virtual time, in seconds. The paper calls it the start tag of the
        model's next request.
      waiting: `RunPool` (the threads of a frontend) → the requests that wait for these threads;
        clients take turns. There is no entry for a pool without waiting requests.
    """

    __slots__ = (
        "_expected_seconds",
        "_running_in_shares",
        "is_held",
        "last_started",
        "limits",
        "model",
        "running",
        "virtual_time",
        "waiting",
    )

    def __init__(self, model: str, limits: RunLimits) -> None:
        self.model = model
        self.limits = limits
        self.is_held = False
        self.last_started = 0.0
        self.running = 0
        self.virtual_time = 0.0
        self.waiting: dict[RunPool, Turns[Ticket]] = {}
        self._expected_seconds = 0.0
        # RunPool → the number of the model's requests that run in the pool, for the pools whose
        # `share` is less than 1. The share limits this number.
        self._running_in_shares: dict[RunPool, int] = {}

    @property
    def length(self) -> int:
        """The number of requests of the model that wait."""
        return sum(map(len, self.waiting.values()))

    def may_start(self, pool: RunPool) -> bool:
        """Return whether one more request of the model may run in the threads `pool` now.

        If no request of a loaded model runs, the result is always True, even if the pool already
        runs `RunPool.max_running` requests.
        """
        if self.is_held:
            return False
        if not self.running:
            return True
        limits = self.limits
        return (
            self.running < limits.max_concurrent_runs
            and (pool.running < pool.max_running or limits.only_waits)
            and (pool.share == 1 or self._has_share(pool))
        )

    def push(self, ticket: Ticket) -> None:
        """Append a request to the waiting requests."""
        self.waiting.setdefault(ticket.pool, Turns()).push(ticket.context.peer, ticket)

    def first(self, pool: RunPool) -> Ticket:
        """Return the request whose turn it is to get one of the threads `pool`."""
        return self.waiting[pool].first

    def remove(self, ticket: Ticket) -> bool:
        """Remove a request from the waiting requests; return whether it was waiting."""
        tickets = self.waiting.get(ticket.pool)
        if tickets is None or not tickets.remove(ticket.context.peer, ticket):
            return False
        if not tickets:
            del self.waiting[ticket.pool]
        return True

    def begin_run(self, ticket: Ticket, now: float) -> None:
        """Record that a request begins to run, and add its expected run time to `virtual_time`.

        A request that only waits (`RunLimits.only_waits`) adds no time. `now` is the time in
        seconds of the queues' clock.
        """
        ticket.started = self.last_started = now
        self.running += 1
        if ticket.pool.share < 1:
            self._count_in_share(ticket.pool, 1)
        if not self.limits.only_waits:
            ticket.pool.running += 1
            ticket.charge = self._expected_seconds
            self.virtual_time += self._expected_seconds

    def end_run(self, ticket: Ticket, now: float) -> None:
        """Record that a request has run, and correct `virtual_time`.

        `virtual_time` then contains the real run time of the request, not the expected run time.
        """
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
