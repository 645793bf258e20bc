"""Something to run for a call, as gRPC wants to hear of it."""

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


class CallFuture:
    """A function to call, and whom to tell once that is done.

    As much of a Future as gRPC uses: the locks of a whole one would cost a tenth of a small call.
    """

    __slots__ = ("_args", "_callbacks", "_function", "_is_done")

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Takes what to call."""
        self._function = function
        self._args = args
        self._callbacks: list[Callable[[CallFuture], object]] = []
        self._is_done = False

    def add_done_callback(self, callback: Callable[["CallFuture"], object]) -> None:
        """Has the callback called when the function has returned, or now if it has."""
        self._callbacks.append(callback)
        if self._is_done:
            self._tell()

    def run(self) -> None:
        """Calls the function, in the calling thread."""
        try:
            self._function(*self._args)
        except BaseException:
            # Whatever it is: the thread is there for other calls too.
            logger.exception("a call has failed")
        finally:
            self._args = ()
            self._is_done = True
            self._tell()

    def _tell(self) -> None:
        # Popping is atomic, so that of two threads here only one calls.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)
