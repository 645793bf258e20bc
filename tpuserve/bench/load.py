"""Sends requests to a server in closed or open loops.

In a closed loop, each of several clients sends its next request when its last one is answered.
"""

import asyncio
import random
import time
from array import array
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from tpuserve.bench.sender import Sender

MAX_WAITING = 10_000
"""The largest number of unanswered requests of an open loop. Further requests count as errors."""


@dataclass(frozen=True)
class Load:
    """The load that a benchmark puts on a server: a closed loop or an open loop of requests.

    Attributes:
      concurrency: the number of clients of a closed loop; None for an open loop.
      rate: the requests per second of an open loop; None for a closed loop.
      is_poisson: whether the times between the requests of an open loop are random, as those of
        independent users are; otherwise they are equal.
    """

    concurrency: int | None = None
    rate: float | None = None
    is_poisson: bool = False

    def __str__(self) -> str:
        if self.rate is None:
            return f"concurrency {self.concurrency}"
        return f"{self.rate:g} requests/s"


@dataclass
class Samples:
    """The latencies and errors of the requests that ended since the last call of `take`.

    Attributes:
      first_error: the error text of the first failed request; "" if none failed.
    """

    latencies_s: "array[float]" = field(default_factory=lambda: array("d"))
    num_errors: int = 0
    first_error: str = ""

    def add(self, latency_s: float, error: str) -> None:
        """Record the end of a request."""
        if error:
            self.num_errors += 1
            self.first_error = self.first_error or error
        else:
            self.latencies_s.append(latency_s)

    def take(self) -> "Samples":
        """Return what was recorded since the last call, and start again without samples."""
        taken = Samples(self.latencies_s, self.num_errors, self.first_error)
        self.latencies_s, self.num_errors, self.first_error = array("d"), 0, ""
        return taken


class LoadGenerator:
    """Sends the requests of a load, from the start to the end of an `async with` block."""

    def __init__(self, sender: Sender, load: Load) -> None:
        self.samples = Samples()
        self._sender = sender
        self._load = load
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def __aenter__(self) -> "LoadGenerator":
        if self._load.concurrency is not None:
            for client in range(self._load.concurrency):
                self._start(self._send_repeatedly(client))
        else:
            assert self._load.rate is not None
            times = arrival_times(self._load.rate, self._load.is_poisson)
            self._start(self._send_at(times))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def raise_failure(self) -> None:
        """Raise the exception of a sending task that has crashed; do nothing if none has.

        An error response of the server is not raised: it is counted in `samples`.
        """
        if self._failure is not None:
            raise self._failure

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._failure = self._failure or task.exception()

    async def _send_repeatedly(self, client: int) -> None:
        index = client
        step = self._load.concurrency or 1
        send, add = self._sender.send, self.samples.add
        while True:
            started = time.perf_counter()
            error = await send(index)
            add(time.perf_counter() - started, error)
            index += step
            if error:
                # Wait after an error: if the server refuses connections, each client would
                # otherwise try to connect thousands of times a second.
                await asyncio.sleep(0.01)

    async def _send_at(self, times: Iterator[float]) -> None:
        started = time.perf_counter()
        for index, due in enumerate(times):
            delay = started + due - time.perf_counter()
            if delay > 0:
                await asyncio.sleep(delay)
            if len(self._tasks) > MAX_WAITING:
                self.samples.add(0, f"not sent: {MAX_WAITING} requests wait for an answer")
                # Do not send this request: too many earlier ones have no answer. Give the event
                # loop time to receive responses, even if the next request is due already.
                await asyncio.sleep(0)
                continue
            self._start(self._send_due(index, started + due))

    async def _send_due(self, index: int, due: float) -> None:
        error = await self._sender.send(index)
        self.samples.add(time.perf_counter() - due, error)


def arrival_times(rate: float, is_poisson: bool) -> Iterator[float]:
    """Yield the times at which the requests of an open loop are due, in seconds from its start.

    Args:
      is_poisson: whether the times between requests are exponentially distributed; otherwise they
        are equal. The seed of the random numbers is fixed: calls with the same arguments yield the
        same times.
    """
    generator = random.Random(0)
    due, count = 0.0, 0
    while True:
        yield due
        count += 1
        due = due + generator.expovariate(rate) if is_poisson else count / rate
