"""Configuration of the process's loggers: the stream and the format of log lines."""

import contextlib
import fcntl
import logging.config
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

# Only type checkers accept a type parameter of StreamHandler in Python 3.10; at run time it is an
# error.
if TYPE_CHECKING:
    _TextHandler = logging.StreamHandler[TextIO]
else:
    _TextHandler = logging.StreamHandler

# Held by the thread that writes a line. A reentrant lock, because a signal handler may log while
# it interrupts the main thread in a write.
_LOCK = threading.RLock()


class SharedStreamHandler(_TextHandler):
    """Writes lines to a stream to which other processes write too.

    A pipe takes only 4096 bytes at once. Without a lock, the line of another process could come
    between the parts of a longer line, such as one of the access log with a path of 60 KB.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record while no other process writes."""
        with _LOCK, _locked(self.stream):
            super().emit(record)


class LineFormatter(logging.Formatter):
    """Writes the message of a record as one line, with escapes for the control characters in it.

    Messages may quote texts of clients or of storage, which could look like further lines of the
    log. A traceback keeps its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record without its traceback."""
        return super().formatMessage(record).translate(_ESCAPES)


_ESCAPES = {
    number: repr(chr(number))[1:-1]
    for number in (*range(32), *range(127, 160), 0x2028, 0x2029)
    if chr(number) != "\t"
}


@contextlib.contextmanager
def _locked(stream: TextIO) -> Iterator[None]:
    """Hold the lock of a stream's file, which the system releases if the process ends."""
    is_locked = False
    # Write without the lock if the stream has no file, or a file that cannot be locked.
    with contextlib.suppress(OSError, ValueError):
        fcntl.lockf(stream, fcntl.LOCK_EX)
        is_locked = True
    try:
        yield
    finally:
        if is_locked:
            fcntl.lockf(stream, fcntl.LOCK_UN)


def configure_logging(*, is_shared: bool = False) -> None:
    """Send the lines of every logger to stderr, with the time.

    Only warnings and errors of uvicorn and TensorFlow are shown.

    Args:
      is_shared: whether other processes of this server write to the same stderr.
    """
    name = f"{__name__}.SharedStreamHandler" if is_shared else "logging.StreamHandler"
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "line": {
                    "()": LineFormatter,
                    "format": "%(asctime)s %(levelname).1s %(name)s: %(message)s",
                },
                # The format of the access log has no time in front, because the JSON of each line
                # contains the time.
                "bare": {"format": "%(message)s"},
            },
            "handlers": {
                "stderr": {"class": name, "formatter": "line"},
                "access": {"class": name, "formatter": "bare"},
            },
            "root": {"level": "INFO", "handlers": ["stderr"]},
            # Leave out uvicorn's lines below WARNING, because the server logs its own start and
            # stop.
            "loggers": {
                "uvicorn": {"level": "WARNING"},
                "tensorflow": {"level": "WARNING"},
                # Its warnings are about headers that clients choose.
                "opentelemetry.trace": {"level": "ERROR"},
                "server.access": {"handlers": ["access"], "propagate": False},
            },
        }
    )
