"""The context of a request: what all layers of the server know about it."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryReservation
from server.metrics.timeline import Timeline
from server.process.alarm import Alarm, log_exceptions
from tpuserve.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True, eq=False)
class RequestContext:
    """A request, from its arrival to its answer. The frontend that receives the request makes it.

    The layers behind the frontend look at `cancellation` alone while they wait: the clock cancels
    it at the deadline. Only the model runtime gets the rest of the time, as `remaining_ms`.

    Attributes:
      deadline: when the time of the request is over, in seconds of `time.monotonic`; infinite for
        no limit.
      cancellation: is set when nobody waits for the answer any more: the client has left, or the
        deadline has passed.
      memory: the request's reservation in the memory budget; None for a small request, which
        reserves nothing.
      model: the name of the requested model; empty for a request that runs no model.
    """

    deadline: float = math.inf
    cancellation: Cancellation = field(default_factory=Cancellation)
    timeline: Timeline = field(default_factory=Timeline)
    memory: MemoryReservation | None = None
    peer: str = ""
    model: str = ""

    def check(self) -> None:
        """Raise an error if nobody waits for the answer, so that nothing must run for it."""
        self.cancellation.raise_if_cancelled()
        if self.deadline <= time.monotonic():
            raise self.expiry_error()

    def remaining_ms(self) -> float | None:
        """Return the milliseconds until the deadline, more than 0; None for no deadline."""
        if self.deadline == math.inf:
            return None
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise self.expiry_error()
        return seconds * 1000

    def limited_to(self, deadline: float) -> "RequestContext":
        """Return the context with an earlier deadline, if `deadline` is one, and watch it."""
        if deadline >= self.deadline:
            return self
        limited = replace(self, deadline=deadline)
        CLOCK.watch(limited)
        return limited

    def reserve(self, num_bytes: int) -> None:
        """Reserve memory for the request; see `MemoryReservation.grow` for the errors."""
        if self.memory is not None:
            self.memory.grow(num_bytes)

    def expiry_error(self) -> DeadlineExceeded:
        """Return the error of a request whose deadline has passed."""
        elapsed_ms = (time.perf_counter_ns() - self.timeline.started_ns) / 1e6
        return DeadlineExceeded(
            f"the time limit of the request has passed, {elapsed_ms:.0f} ms after its arrival. "
            f"Allow more time, or send the request again later."
        )


class DeadlineClock:
    """Cancels the requests whose deadlines pass. Thread-safe.

    Its thread is the only one of a process that waits for the deadlines of requests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: dict[Cancellation, RequestContext] = {}
        self._lock = threading.Lock()
        self._alarm = Alarm(self.cancel_expired, "deadlines", clock)
        self._is_started = False

    def watch(self, context: RequestContext) -> None:
        """Cancel a request at its deadline, unless `unwatch` is called before.

        The frontend that has made the context calls both: the latter when the request is answered.
        Of several deadlines of a request, the earliest counts.
        """
        if context.deadline == math.inf or context.cancellation.is_cancelled:
            return
        if not self._is_started:
            self.start()
        with self._lock:
            watched = self._watched.setdefault(context.cancellation, context)
            if context.deadline < watched.deadline:
                self._watched[context.cancellation] = context
        self._alarm.set(context.deadline)

    def unwatch(self, context: RequestContext) -> None:
        """Forget a request, which is answered; do nothing if it is not watched."""
        if context.cancellation in self._watched:
            with self._lock:
                self._watched.pop(context.cancellation, None)

    def start(self) -> None:
        """Start the thread, unless it runs already."""
        self._alarm.start()
        self._is_started = True

    def cancel_expired(self) -> float:
        """Cancel the requests whose deadlines have passed.

        Returns:
          The next deadline in seconds of the clock; infinite for none.
        """
        now = self._clock()
        with self._lock:
            expired = [context for context in self._watched.values() if context.deadline <= now]
            for context in expired:
                del self._watched[context.cancellation]
            deadlines = (context.deadline for context in self._watched.values())
            following = min(deadlines, default=math.inf)
        for context in expired:
            with log_exceptions():
                context.cancellation.cancel(context.expiry_error())
        return following


CLOCK = DeadlineClock()
"""The clock of this process."""
