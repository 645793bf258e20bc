"""Calls that leave their thread while they wait, and go on in another thread."""

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from server.servables.pending import Pending

if TYPE_CHECKING:
    from server.frontends.grpc.executor.call_future import CallFuture


class CallSuspended(BaseException):
    """Ends the first run of a call's handler; the handler runs again when a Pending is complete.

    A BaseException, because grpcio answers a call whose handler raises any other exception. After
    this one, grpcio leaves the call open.

    Attributes:
      pending: what the call waits for.
    """

    def __init__(self, pending: Pending[Any]) -> None:
        """Create the exception that ends the run."""
        super().__init__()
        self.pending = pending


class ResumingThread:
    """A thread that runs suspended calls again, one after another, once they can go on.

    One thread suffices: such a call does not wait any more, and only serialises its response.
    """

    def __init__(self) -> None:
        """Create the object; its thread starts with the first call."""
        self._calls: SimpleQueue[CallFuture | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def resume_when_complete(self, future: "CallFuture", pending: Pending[Any]) -> None:
        """Run a suspended call again when a Pending is complete."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="grpc-resume", daemon=True
                    )
                    self._thread.start()
        pending.add_done_callback(lambda: self._calls.put(future))

    def close(self, timeout_seconds: float) -> None:
        """End the thread after the calls that can go on."""
        self._calls.put(None)
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (future := self._calls.get()) is not None:
            future.run()
            # Drop the call, which must not stay in memory while the thread waits.
            del future
