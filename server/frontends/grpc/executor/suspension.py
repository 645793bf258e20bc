"""Suspension of calls: a waiting call frees its thread, and later continues in another thread."""

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from server.process.thread_pool import ThreadPool
from server.scheduling.fair_queue import FairQueue
from server.servables.pending import Pending

if TYPE_CHECKING:
    from server.frontends.grpc.executor.call_future import CallFuture

# A response is slow if it takes more than this processor time, in seconds.
_SLOW_SECONDS = 0.01
# The number of threads for the slow responses. Few suffice, because Python runs one at a time.
_SLOW_THREADS = 4


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

    One thread suffices for small responses, because such a handler does not wait, and only
    serialises the response. The thread takes the calls of the models in turn, so that the many
    responses of a large batch of one model do not delay the responses of other models. After a call
    whose response has taken long, the handlers of the same model run in a pool, until a response of
    the model takes less time.
    """

    def __init__(self) -> None:
        """Create the object, without starting its thread."""
        self._calls: FairQueue[tuple[CallFuture, str]] = FairQueue()
        # The names of the models whose last response has taken long. Only models that have run are
        # stored, so clients cannot fill the memory with names.
        self._slow_models: set[str] = set()
        self._slow_calls = ThreadPool(_SLOW_THREADS, "grpc-large-response")
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
            self._calls.put(suspended.model, (future, suspended.model))
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
        self._slow_calls.shutdown(wait=False)

    def _run(self) -> None:
        while self._signals.get():
            call = self._calls.pop()
            assert call is not None, "each signal follows an item"
            _, model = call
            if model in self._slow_models:
                self._slow_calls.run_soon(self._resume, *call)
            else:
                self._resume(*call)
            # Delete the reference to the finished call, which would keep its messages in memory
            # while the thread waits for the next call.
            del call

    def _resume(self, future: "CallFuture", model: str) -> None:
        """Run a call again, and record whether its response has taken long."""
        started = time.thread_time()
        future.run()
        if time.thread_time() - started > _SLOW_SECONDS:
            self._slow_models.add(model)
        else:
            self._slow_models.discard(model)
