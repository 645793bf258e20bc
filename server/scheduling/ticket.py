"""Tickets, which represent requests in the queues, and the limits of a frontend's threads."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from server.request import RequestContext
from tpuserve.errors import TpuserveError

if TYPE_CHECKING:
    from server.scheduling.model_queue import ModelQueue


class RunPool:
    """The threads in which a frontend runs requests of one kind, for example small requests.

    Attributes:
      max_running: the largest number of requests that run in these threads at the same time.
        Requests that only wait for their batch or for another process do not count.
      share: the largest share of a model's `max_concurrent_runs` that requests of this kind may
        use, from 0 to 1. One request may always run.
    """

    __slots__ = ("max_running", "running", "share")

    def __init__(self, max_running: int, share: float = 1) -> None:
        self.share = share
        self.max_running = max_running
        self.running = 0


class Ticket(ABC):
    """Represents a request of a frontend in the queues, from its arrival until it has run.

    The attributes except `context` and `pool` are only for `RequestQueues` and its queues.

    Attributes:
      enqueued: when the request began to wait, in seconds of the queues' clock.
      started: when the request began to run, in seconds of the same clock.
      charge: the expected run time in seconds that was added to the model's virtual time when the
        request began to run. None if the request only waits for its batch or for another process,
        so that it does not count in its pool.
    """

    __slots__ = (
        "charge",
        "context",
        "enqueued",
        "number",
        "pool",
        "queue",
        "started",
    )

    queue: "ModelQueue"

    def __init__(self, context: RequestContext, pool: RunPool) -> None:
        self.context = context
        self.pool = pool
        self.number = 0
        self.enqueued = self.started = 0.0
        self.charge: float | None = None

    @abstractmethod
    def start(self) -> None:
        """Run the request, which has waited, in another thread of its frontend. Must not block."""

    @abstractmethod
    def refuse(self, error: TpuserveError) -> None:
        """Answer the request, which has waited, with an error. Must not block."""


class RunnableTicket(Ticket):
    """The ticket of a request that `RequestQueues.run` can run."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> None:
        """Run the request in the calling thread. Must not raise."""


class InlineTicket(Ticket):
    """The ticket of a request that cannot wait in a queue, for `RequestQueues.try_start`."""

    __slots__ = ()

    def start(self) -> None:
        """Raise an AssertionError: the request never waits in a queue that could start it."""
        raise AssertionError("the request never waits")

    def refuse(self, error: TpuserveError) -> None:
        """Raise an AssertionError: the request never waits in a queue that could refuse it."""
        raise AssertionError("the request never waits")
