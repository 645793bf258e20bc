"""Limits how many requests of a version run at the same time without a batch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from server.admission import nonblocking
from server.request import RequestContext


class RunSlots:
    """A fixed number of slots; each request that runs alone occupies one. Thread-safe.

    The queues of models do not limit these requests: they assume that a request of a batched model
    only waits for its batch.
    """

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._condition = threading.Condition()

    @contextmanager
    def occupy(self, context: RequestContext) -> Iterator[None]:
        """Wait for a free slot, and occupy the slot in the context of the `with` statement."""
        with self._condition:
            if not self._free:
                if not nonblocking.blocking_allowed():
                    raise nonblocking.WouldBlock
                self._wait(context)
            self._free -= 1
        try:
            context.check()
            yield
        finally:
            with self._condition:
                self._free += 1
                self._condition.notify()

    def _wait(self, context: RequestContext) -> None:
        """Wait until a slot is free; the caller holds the condition."""
        cancellation = context.cancellation
        cancellation.add_callback(self._wake)
        try:
            self._condition.wait_for(lambda: self._free or cancellation.is_cancelled)
            cancellation.raise_if_cancelled()
        except BaseException:
            # Pass on the wake-up that this request may have got in the place of another.
            self._condition.notify()
            raise
        finally:
            cancellation.remove_callback(self._wake)

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()
