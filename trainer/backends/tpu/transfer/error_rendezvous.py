"""Where the errors of several threads meet, so that the first cause is what the caller sees."""

import logging
import threading
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType

import tensorflow as tf

logger = logging.getLogger("tensorflow.trainer")


class ErrorKind(IntEnum):
    """What an error says; what says most goes before what came first."""

    CAUSE = 0
    # A machine that has gone: the cause, unless there is a better one.
    LOSS = 1
    # Something else has ended.
    CONSEQUENCE = 2


def classify_error(error: BaseException) -> ErrorKind:
    """Whether an error is a cause, or comes of another one."""
    if isinstance(error, tf.errors.AbortedError | tf.errors.UnavailableError):
        return ErrorKind.LOSS
    if isinstance(error, tf.errors.CancelledError | tf.errors.OutOfRangeError):
        return ErrorKind.CONSEQUENCE
    # What TensorFlow says of a session that was closed before it was run.
    is_closed = isinstance(error, RuntimeError) and "closed Session" in str(error)
    return ErrorKind.CONSEQUENCE if is_closed else ErrorKind.CAUSE


class ErrorRendezvous:
    """Collects errors; at the end raises the one that the others follow from.

    As a context manager it takes the error of the block as one more, and raises in its place.
    """

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self._lock = threading.Lock()
        self._errors: list[tuple[str, BaseException]] = []
        self._at_end: list[Callable[[], None]] = []

    def record(self, source: str, error: BaseException) -> None:
        """Takes an error of a thread named by its source."""
        with self._lock:
            self._errors.append((source, error))

    def on_exit(self, function: Callable[[], None]) -> None:
        """Has a function called when the block is left, however it is."""
        self._at_end.append(function)

    @property
    def cause(self) -> BaseException | None:
        """The first error that does not come of another one."""
        first = self._first()
        return first if first is not None and classify_error(first) is ErrorKind.CAUSE else None

    def _first(self) -> BaseException | None:
        with self._lock:
            return min((each for _, each in self._errors), key=classify_error, default=None)

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
        for function in self._at_end:
            function()
        if error is not None and not isinstance(error, Exception):
            # Ctrl-C, an exit and the end of a generator are nobody's error.
            return
        # A session takes some errors for the end of the input, and raises none then.
        first = self.cause if error is None else self._first()
        for source, each in self._errors:
            if each is not first:
                logger.debug("%s failed too: %s", source, each)
        if first is not None and first is not error:
            # The error of the main thread says only that the other thread has gone.
            raise first from None
