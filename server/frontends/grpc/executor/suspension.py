"""Suspension of calls: a waiting call frees its thread, and later continues in another thread."""

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from server.scheduling.fair_queue import FairQueue
from server.servables.pending import Pending

if TYPE_CHECKING:
    from server.frontends.grpc.executor.call_future import CallFuture


class CallSuspended(BaseException):
    """The exception with which the handler of a call frees its thread while the call waits.

    The call waits for a result, for example for the outputs of a batch. When the result is
    complete, the handler runs again from its beginning, in another thread.

    This class is a BaseException, because grpcio ends a call whose handler raises an Exception, but
    leaves the call open after a BaseException.

    Attributes:
      pending: the result that the call waits for.
      model: the name of the model that computes the result.
    """

    def __init__(self, pending: Pending[Any], model: str) -> None:
        """Create the exception.

        Args:
          pending: the result that the call waits for.
          model: the name of the model that computes the result.
        """
        super().__init__()
        self.pending = pending
        self.model = model


class ResumingThread:
    """A thread that runs the handlers of suspended calls again when their results are complete.

    One thread suffices, because such a handler does not wait, and only serialises the response. The
    thread takes the calls of the models in turn, so that the many responses of a large batch of one
    model do not delay the responses of other models.
    """

    def __init__(self) -> None:
        """Create the object, without starting its thread."""
        self._calls: FairQueue[CallFuture] = FairQueue()
        # The queue on which the thread blocks. True means that a further call in `_calls` is ready
        # to run again. False means that the thread must end.
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grpc-resume", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def resume_when_complete(self, future: "CallFuture", suspended: CallSuspended) -> None:
        """Run a suspended call again, in the thread of this object, when its result is complete.

        Args:
          future: the call; its method `run` is called.
          suspended: the exception with which the handler has suspended the call.
        """

        def resume() -> None:
            self._calls.put(suspended.model, future)
            self._signals.put(True)

        suspended.pending.add_done_callback(resume)

    def close(self, timeout_seconds: float) -> None:
        """End the thread after it has run the calls whose results are complete.

        Args:
          timeout_seconds: how long to wait for the end of the thread.
        """
        self._signals.put(False)
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while self._signals.get():
            future = self._calls.pop()
            assert future is not None, "each signal follows an item"
            future.run()
            # Delete the reference to the finished call, which would keep its messages in memory
            # while the thread waits for the next call.
            del future
