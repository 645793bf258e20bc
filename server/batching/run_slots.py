"""Limits how many requests of a version run at the same time without a batch."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from server.admission import nonblocking
from server.admission.cancellation import Cancellation
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
        self._count = count
        self._semaphore = threading.Semaphore(count)

    @contextmanager
    def occupy(
        self, timeout_ms: float | None, cancellation: Cancellation | None
    ) -> Iterator[float | None]:
        """Wait for a free slot, and occupy the slot in the context.

        Args:
          timeout_ms: the time limit of the request in milliseconds; None for no limit.
          cancellation: cancels the request; None if the request cannot be cancelled.

        Yields:
          The milliseconds that are left for the run; None for no limit.

        Raises:
          DeadlineExceeded: no slot became free within the time limit.
          Cancelled: the request was cancelled while it waited.
          WouldBlock: no slot is free, and the calling thread must not wait.
        """
        if not self._semaphore.acquire(blocking=False):
            if not nonblocking.blocking_allowed():
                raise nonblocking.WouldBlock
            timeout_ms = self._wait(timeout_ms)
        try:
            if cancellation is not None:
                cancellation.raise_if_cancelled()
            yield timeout_ms
        finally:
            self._semaphore.release()

    def _wait(self, timeout_ms: float | None) -> float | None:
        started = time.monotonic()
        timeout_seconds = None if timeout_ms is None else max(0, timeout_ms / 1000)
        if not self._semaphore.acquire(timeout=timeout_seconds):
            raise DeadlineExceeded(
                f"the request has waited for {timeout_ms:g} ms: {self._count} requests run, the "
                f"limit of num_batch_threads. Allow more time, or raise num_batch_threads."
            )
        if timeout_ms is None:
            return None
        return max(0, timeout_ms - (time.monotonic() - started) * 1000)
