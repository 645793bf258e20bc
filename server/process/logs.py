"""Configures the loggers of the process: the stream and the format of log lines."""

import contextlib
import fcntl
import logging.config
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO, TypeAlias

import orjson

TraceIds: TypeAlias = tuple[str, str] | None
"""The trace ID and the span ID of a request in hexadecimal digits; None if it is not traced."""

TRACE: ContextVar[Callable[[], TraceIds]] = ContextVar("TRACE", default=lambda: None)
"""Returns the IDs of the request that the present context handles. Frontends set it."""

# Held by the thread that writes a log line. The lock is reentrant, because a signal handler can
# interrupt the main thread while this thread writes a log line, and then write a line itself.
_LOCK = threading.RLock()


class SharedStreamHandler(logging.StreamHandler[TextIO]):
    """Writes log lines to a stream to which other processes write too, such as a common stderr.

    A write to a pipe is atomic only up to 4096 bytes. A line of the access log can be longer,
    because it contains a URL path.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record while no other process writes to the stream."""
        with _LOCK, _hold_lock(self.stream):
            super().emit(record)


class LineFormatter(logging.Formatter):
    """Writes the message of a record as one line, with escapes for the control characters in it.

    Messages can quote texts from clients or storage. Without the escapes, line breaks in such a
    text could fake log lines. The line breaks of a traceback are kept.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the log line of a record, without the record's traceback."""
        return super().formatMessage(record).translate(_ESCAPES)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON; a message that is a mapping gives the line its fields.

    A line that is logged while a traced request is handled has the IDs of its trace and span.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with its traceback in the field "exception"."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname,
            "logger": record.name,
        }
        if isinstance(record.msg, Mapping):
            line.update(record.msg)
        else:
            line["message"] = record.getMessage()
            add_trace(line, TRACE.get()())
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dump_line(line)


class Line(dict[str, Any]):
    """The fields of a line that is JSON in each format of the log, as the message of a record."""

    def __str__(self) -> str:
        return dump_line(self)


def add_trace(line: dict[str, Any], ids: TraceIds) -> None:
    """Add the fields "trace_id" and "span_id" to a line, if its request is traced."""
    if ids is not None:
        line["trace_id"], line["span_id"] = ids


def dump_line(line: Mapping[str, Any]) -> str:
    """Encode the fields of a line as JSON, with "?" for each lone surrogate in a text."""
    try:
        return orjson.dumps(line).decode()
    except TypeError:
        # orjson refuses lone surrogates, which texts from clients may contain.
        return orjson.dumps(
            {key: _replace_surrogates(value) for key, value in line.items()}
        ).decode()


def _replace_surrogates(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


_ESCAPES = {
    number: repr(chr(number))[1:-1]
    for number in (*range(32), *range(127, 160), 0x2028, 0x2029)
    if chr(number) != "\t"
}


@contextlib.contextmanager
def _hold_lock(stream: TextIO) -> Iterator[None]:
    """Hold a lock on the file of a stream, so that other processes do not write to it."""
    is_locked = False
    # If the stream has no file, or its file cannot be locked, write without the lock.
    with contextlib.suppress(OSError, ValueError):
        fcntl.lockf(stream, fcntl.LOCK_EX)
        is_locked = True
    try:
        yield
    finally:
        if is_locked:
            fcntl.lockf(stream, fcntl.LOCK_UN)


def configure_logging(*, is_json: bool = False, is_shared: bool = False) -> None:
    """Send the lines of every logger to stderr.

    Each line begins with the time, except the lines of the access log, which are JSON. If
    `is_json`, each line is JSON, also those of Python's warnings.
    """
    logging.captureWarnings(is_json)
    json = {"()": JsonFormatter}
    name = f"{__name__}.SharedStreamHandler" if is_shared else "logging.StreamHandler"
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "line": json
                if is_json
                else {
                    "()": LineFormatter,
                    "format": "%(asctime)s %(levelname).1s %(name)s: %(message)s",
                },
                # The lines of the access log do not begin with the time, because each line is JSON
                # that contains the time.
                "bare": json if is_json else {"format": "%(message)s"},
            },
            "handlers": {
                "stderr": {"class": name, "formatter": "line"},
                "access": {"class": name, "formatter": "bare"},
            },
            "root": {"level": "INFO", "handlers": ["stderr"]},
            # Do not show uvicorn's lines below WARNING, because the server itself logs its start
            # and stop.
            "loggers": {
                "uvicorn": {"level": "WARNING"},
                "tensorflow": {"level": "WARNING"},
                # Do not show OpenTelemetry's warnings about invalid trace headers, because clients
                # choose these headers and could fill the log.
                "opentelemetry.trace": {"level": "ERROR"},
                "server.access": {"handlers": ["access"], "propagate": False},
            },
        }
    )
