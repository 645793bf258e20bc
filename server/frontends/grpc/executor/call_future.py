"""The future that the executors return to grpcio for a gRPC call."""

import logging
from collections.abc import Callable
from typing import Any

from server.frontends.grpc.executor.suspension import CallMoved, CallSuspended, ResumingThread

logger = logging.getLogger(__name__)


class CallFuture:
    """A function to run for a call, and the callbacks to call after the function has returned.

    The class implements only the part of `concurrent.futures.Future` that grpcio uses, because the
    locks of a complete Future would cost a tenth of the time of a small call.

    Args:
      resuming_thread: the thread that calls `run` again after the handler has raised
        CallSuspended; None if the handler never raises it.
    """

    __slots__ = ("_args", "_callbacks", "_function", "is_done", "_resuming_thread")

    def __init__(
        self,
        function: Callable[..., object],
        args: tuple[Any, ...],
        resuming_thread: ResumingThread | None = None,
    ) -> None:
        self._resuming_thread = resuming_thread
        self._function = function
        self._args = args
        self._callbacks: list[Callable[[CallFuture], object]] = []
        self.is_done = False

    def add_done_callback(self, callback: Callable[["CallFuture"], object]) -> None:
        """Call a function with this future when the call is done; at once if it is done already."""
        self._callbacks.append(callback)
        if self.is_done:
            self._call_callbacks()

    def run(self) -> None:
        """Call the function of the future in the current thread. Log an exception that it raises.

        If the handler of the call suspends it, the resuming thread will call `run` again.

        Raises:
          CallMoved: the caller must let another thread call `run` again.
        """
        try:
            self._function(*self._args)
        except CallSuspended as suspended:
            assert self._resuming_thread is not None, "the handler may not suspend the call"
            self._resuming_thread.resume_when_complete(self, suspended)
            return
        except CallMoved:
            raise
        except BaseException:
            # Catch every exception: even SystemExit must not end the current thread, which runs
            # other calls afterwards.
            logger.exception("a call has failed")
        self._args = ()
        self.is_done = True
        self._call_callbacks()

    def _call_callbacks(self) -> None:
        # Take each callback with list.pop, which is atomic: two threads can run this loop at the
        # same time, and each callback must be called only once.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)
