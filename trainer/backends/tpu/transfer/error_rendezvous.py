"""Collects the errors of the threads of a TPU run, and raises the root cause."""

import logging
import threading
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType

import tensorflow as tf

logger = logging.getLogger("tensorflow.trainer")


class ErrorKind(IntEnum):
    """The role of an error in a failed run.

    If several errors occur, an error of the kind with the smallest value is raised.

    Attributes:
      LOSS: TensorFlow's error about a lost worker. It made the run fail, unless there is a CAUSE.
    """

    CAUSE = 0
    LOSS = 1
    CONSEQUENCE = 2


def classify_error(error: BaseException) -> ErrorKind:
    """Return the role that an error of this type has in a failed run."""
    if isinstance(error, tf.errors.AbortedError | tf.errors.UnavailableError):
        return ErrorKind.LOSS
    if isinstance(error, tf.errors.CancelledError | tf.errors.OutOfRangeError):
        return ErrorKind.CONSEQUENCE
    # Classify the error of a `session.run` in a closed session as a consequence: an earlier error
    # has closed the session.
    is_closed = (isinstance(error, RuntimeError) and "closed Session" in str(error)) or (
        isinstance(error, tf.errors.FailedPreconditionError) and "Session is closed" in str(error)
    )
    return ErrorKind.CONSEQUENCE if is_closed else ErrorKind.CAUSE


class ErrorRendezvous:
    """Collects the errors of several threads, and raises the root cause at the end.

    The main thread uses the object as a context manager. The end of the `with` block adds the
    block's own error, and raises the root cause of all collected errors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: list[tuple[str, BaseException]] = []
        self._exit_callbacks: list[Callable[[], None]] = []

    def record(self, source: str, error: BaseException) -> None:
        """Record the error of a thread."""
        with self._lock:
            self._errors.append((source, error))

    def on_exit(self, function: Callable[[], None]) -> None:
        """Register a function to call at the end of the `with` block, even after an error."""
        self._exit_callbacks.append(function)

    @property
    def cause(self) -> BaseException | None:
        """The first recorded error of the kind CAUSE; None if there is none."""
        first = self._most_informative()
        return first if first is not None and classify_error(first) is ErrorKind.CAUSE else None

    def _most_informative(self) -> BaseException | None:
        with self._lock:
            return min((error for _, error in self._errors), key=classify_error, default=None)

    def __enter__(self) -> "ErrorRendezvous":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self.record("main", error)
        for function in self._exit_callbacks:
            function()
        if error is not None and not isinstance(error, Exception):
            # Let KeyboardInterrupt, SystemExit and GeneratorExit pass. They end the run on purpose,
            # so do not replace them by an error of a thread.
            return
        # A thread can have failed even if the block ends without an error, because a
        # MonitoredSession takes some errors for the end of the input.
        first = self.cause if error is None else self._most_informative()
        for source, other in self._errors:
            if other is not first:
                logger.debug("%s failed too: %s", source, other)
        if first is not None and first is not error:
            # Hide the error of the `with` block, which is only a consequence of the raised error.
            raise first from None
