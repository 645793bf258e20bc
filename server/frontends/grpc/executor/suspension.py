"""Suspension of calls: a waiting call frees its thread, and later continues in another thread."""

import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from server.process.thread_pool import ThreadPool
from server.scheduling.fair_queue import FairQueue
from server.servables.pending import Pending

if TYPE_CHECKING:
    from server.frontends.grpc.executor.call_future import CallFuture

# The number of threads for large responses. Few suffice, because Python runs one at a time.
_LARGE_THREADS = 4


class CallSuspended(BaseException):
    """The exception with which the handler of a call frees its thread while the call waits.

    The call waits for a result, for example for the outputs of a batch. When the result is
    complete, the handler runs again from its beginning, in another thread.
    """

    def __init__(self, pending: Pending[Any], model: str) -> None:
        super().__init__()
        self.pending = pending
        self.model = model


class CallMoved(BaseException):
    """The exception with which the handler of a call leaves a thread that must not block.

    The handler runs again from its beginning, in a thread that may block.
    """


class ResumingThread:
    """A thread that runs the handlers of suspended calls again when their results are complete.

    One thread suffices for small responses, because such a handler does not wait, and only
    serialises the response. Calls with large outputs run in the few threads of a pool.
    """

    def __init__(self) -> None:
        self._small_calls: FairQueue[CallFuture] = FairQueue()
        # The queue on which the thread blocks. True means that a further call in `_small_calls` is
        # ready to run again. False means that the thread must end.
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="grpc-resume", daemon=True)
        # The calls wait in this queue, and not in that of the pool, which is first-in first-out.
        self._large_calls: FairQueue[CallFuture] = FairQueue()
        self._large_pool = ThreadPool(_LARGE_THREADS, "grpc-large-response")
        # The number of threads of the pool that take calls from `_large_calls`.
        self._num_large_threads = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def resume_when_complete(self, future: "CallFuture", suspended: CallSuspended) -> None:
        """Run a suspended call again, in a thread of this object, when its result is complete."""

        def resume() -> None:
            if suspended.pending.is_large:
                self._large_calls.put(suspended.model, future)
                self._add_large_thread()
            else:
                self._small_calls.put(suspended.model, future)
                self._signals.put(True)

        suspended.pending.add_done_callback(resume)

    def close(self, timeout_seconds: float) -> None:
        """End the threads after they have run the calls whose results are complete."""
        self._signals.put(False)
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        self._large_pool.shutdown(wait=False)

    def _run(self) -> None:
        while self._signals.get():
            call = self._small_calls.pop()
            assert call is not None, "each signal follows an item"
            call.run()
            # Delete the reference to the finished call, which would keep its messages in memory
            # while the thread waits for the next call.
            del call

    def _add_large_thread(self) -> None:
        """Let one more thread of the pool take calls from `_large_calls`, unless all do so."""
        with self._lock:
            if self._num_large_threads == _LARGE_THREADS:
                return
            self._num_large_threads += 1
        # Ignore the error that the pool has been shut down: the server has stopped.
        with suppress(RuntimeError):
            self._large_pool.run_soon(self._run_large_calls)

    def _run_large_calls(self) -> None:
        while True:
            call = self._large_calls.pop()
            if call is not None:
                call.run()
                del call
                continue
            with self._lock:
                # Look at the queue again under the lock: a call that was put there just now relies
                # on this thread if all threads were counted.
                if not self._large_calls:
                    self._num_large_threads -= 1
                    return
