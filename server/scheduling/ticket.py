"""The ticket of a request in the queues, and the limits of a frontend's threads."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tpuserve.errors import TpuserveError

if TYPE_CHECKING:
    from server.scheduling.model_queue import ModelQueue


class RunPool:
    """The threads in which a frontend runs one kind of requests, for example small requests.

    Attributes:
      max_running: the largest number of requests that run at the same time, except for those that
        only wait for their batch or for another process.
      share: the largest part of a model's `max_concurrent_runs` that these requests take, from 0
        to 1; one run is always allowed.
      running: the number of requests that run, except for those that only wait.
    """

    __slots__ = ("max_running", "running", "share")

    def __init__(self, max_running: int, share: float = 1) -> None:
        """Create a pool in which no request runs."""
        self.share = share
        self.max_running = max_running
        self.running = 0


class Ticket(ABC):
    """A request of a frontend, from its arrival until the end of its run.

    Only `RequestQueues` reads and writes the attributes other than `model` and `pool`.

    Attributes:
      model: the name of the model; "" for a request that runs no model.
      pool: the threads of the request's frontend.
      queue: the queue of the request's model, once the request was submitted.
      number: a number that increases with the arrival of requests.
      enqueued: when the request began to wait, in seconds of the queues' clock.
      started: when the request began to run, in seconds of the same clock.
      charge: the expected seconds of the run, which were added to the model's virtual time when the
        request began to run; None if the request only waits for its batch or for another process,
        and does not count in its pool.
    """

    __slots__ = ("charge", "enqueued", "model", "number", "pool", "queue", "started")

    queue: "ModelQueue"

    def __init__(self, model: str, pool: RunPool) -> None:
        """Create the ticket of a request that was not submitted yet."""
        self.model = model
        self.pool = pool
        self.number = 0
        self.enqueued = self.started = 0.0
        self.charge: float | None = None

    @abstractmethod
    def start(self) -> None:
        """Run the request in a thread of its frontend, after it has waited. Must not block."""

    @abstractmethod
    def refuse(self, error: TpuserveError) -> None:
        """Answer the request with an error, after it has waited. Must not block."""


class InlineTicket(Ticket):
    """The ticket of a request that runs at once or not at all: it cannot wait in a queue."""

    __slots__ = ()

    def start(self) -> None:
        """Raise an error: the queues start and refuse only requests that wait."""
        raise AssertionError("the request never waits")

    def refuse(self, error: TpuserveError) -> None:
        """Raise an error: the queues start and refuse only requests that wait."""
        raise AssertionError("the request never waits")
