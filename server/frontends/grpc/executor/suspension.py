"""Calls that leave their thread while they wait, and go on in another thread."""

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from server.scheduling.fair_queue import FairQueue
from server.servables.pending import Pending

if TYPE_CHECKING:
    from server.frontends.grpc.executor.call_future import CallFuture


class CallSuspended(BaseException):
    """Ends the first run of a call's handler, which has to wait, for example for a batch.

    The handler runs again, in another thread, when the result that it waits for is complete.

    This class is a BaseException, because grpcio ends a call whose handler raises an Exception, but
    leaves the call open after a BaseException.

    Attributes:
      pending: the result that the call waits for.
      model: the name of the model that computes the result.
    """

    def __init__(self, pending: Pending[Any], model: str) -> None:
        """Create the exception that ends the first run of a call's handler.

        Args:
          pending: the result that the call waits for.
          model: the name of the model that computes the result.
        """
        super().__init__()
        self.pending = pending
        self.model = model


class ResumingThread:
    """A thread that runs suspended calls again, one after another, once they can go on.

    One thread suffices: such a call does not wait any more, and only serialises its response. The
    models take turns, so that the responses of a large batch do not delay those of other models.
    """

    def __init__(self) -> None:
        """Create the object; its thread starts with the first call."""
        self._calls: FairQueue[CallFuture] = FairQueue()
        # The queue that wakes the thread. It holds True for each item of `_calls`, and False when
        # the thread must end.
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def resume_when_complete(self, future: "CallFuture", suspended: CallSuspended) -> None:
        """Run a suspended call again when `suspended.pending` is complete."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="grpc-resume", daemon=True
                    )
                    self._thread.start()

        def resume() -> None:
            self._calls.put(suspended.model, future)
            self._signals.put(True)

        suspended.pending.add_done_callback(resume)

    def close(self, timeout_seconds: float) -> None:
        """End the thread, after it has run the calls that can go on.

        Args:
          timeout_seconds: how long to wait for the thread.
        """
        self._signals.put(False)
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while self._signals.get():
            future = self._calls.pop()
            assert future is not None, "each signal follows an item"
            future.run()
            # Drop the call, which must not stay in memory while the thread waits.
            del future
