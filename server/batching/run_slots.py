"""Limits how many requests of a version run at the same time without a batch."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from server.admission import nonblocking
from server.admission.cancellation import Cancellation
from server.admission.time_limit import remaining_ms
from tpuserve.errors import DeadlineExceeded


class RunSlots:
    """A fixed number of slots; each request that runs alone occupies one. Thread-safe.

    The queues of models do not limit these requests: they assume that a request of a batched model
    only waits for its batch.
    """

    def __init__(self, count: int) -> None:
        """Create the slots.

        Args:
          count: the largest number of requests that run at the same time.
        """
        self._count = self._free = count
        self._condition = threading.Condition()

    @contextmanager
    def occupy(
        self, timeout_ms: float | None, cancellation: Cancellation | None
    ) -> Iterator[float | None]:
        """Wait for a free slot, and occupy the slot in the context.

        Args:
          timeout_ms: the time limit of the request in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.

        Yields:
          The milliseconds that are left for the run, more than 0; None for no limit.

        Raises:
          DeadlineExceeded: no slot became free within the time limit.
          Cancelled: the request was cancelled while it waited.
          WouldBlock: no slot is free, and the calling thread must not wait.
        """
        with self._condition:
            if not self._free:
                if not nonblocking.blocking_allowed():
                    raise nonblocking.WouldBlock
                timeout_ms = self._wait(timeout_ms, cancellation or Cancellation())
            self._free -= 1
        try:
            if cancellation is not None:
                cancellation.raise_if_cancelled()
            yield timeout_ms
        finally:
            with self._condition:
                self._free += 1
                self._condition.notify()

    def _wait(self, timeout_ms: float | None, cancellation: Cancellation) -> float | None:
        """Wait until a slot is free; the caller holds the condition."""
        started = time.monotonic()
        timeout_seconds = None if timeout_ms is None else max(0, timeout_ms / 1000)
        cancellation.add_callback(self._wake)
        try:
            self._condition.wait_for(
                lambda: self._free or cancellation.is_cancelled, timeout_seconds
            )
            cancellation.raise_if_cancelled()
            if not self._free:
                raise DeadlineExceeded(
                    f"the request has waited for {timeout_ms:g} ms: {self._count} requests run, "
                    f"the limit of num_batch_threads. Allow more time, or raise num_batch_threads."
                )
            return remaining_ms(timeout_ms, started)
        except BaseException:
            # Pass on the wake-up that this request may have got in the place of another.
            self._condition.notify()
            raise
        finally:
            cancellation.remove_callback(self._wake)

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
