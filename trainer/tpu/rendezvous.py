"""Where the errors of several threads meet, so that the first cause is what the caller sees."""

import logging
import threading
from types import TracebackType
from typing import Any

import tensorflow as tf

logger = logging.getLogger("tensorflow.trainer")

# What a thread gets because another one has failed or a session has been closed.
_CONSEQUENCES = (
    tf.errors.CancelledError,
    tf.errors.AbortedError,
    tf.errors.UnavailableError,
    tf.errors.OutOfRangeError,
)


class Rendezvous:
    """Collects errors; at the end raises the one that the others follow from.

    As a context manager it takes the error of the block as one more, and raises in its place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._errors: list[tuple[str, BaseException]] = []

    def record(self, source: str, error: BaseException) -> None:
        """Takes an error of a thread named by its source."""
        with self._lock:
            self._errors.append((source, error))

    @property
    def has_cause(self) -> bool:
        """Whether an error is known that is no mere consequence."""
        return self._cause() is not None

    def _cause(self) -> BaseException | None:
        with self._lock:
            causes = [each for _, each in self._errors if not isinstance(each, _CONSEQUENCES)]
        return causes[0] if causes else None

    def __enter__(self) -> "Rendezvous":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            # Ctrl-C and exits are nobody's error.
            return
        if error is not None:
            self.record("main", error)
        cause = self._cause()
        if cause is None:
            return
        for source, each in self._errors:
            if each is not cause:
                logger.debug("%s failed too: %s", source, each)
        if cause is not error:
            # The error of the main thread says only that the other thread has gone.
            raise cause from None


def is_consequence(error: Any) -> bool:
    """Whether an error says only that something else has ended."""
    return isinstance(error, _CONSEQUENCES)
