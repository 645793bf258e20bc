"""Prevents TensorFlow's log lines from being written twice in programs that call tf.app.run."""

import logging

from absl import logging as absl_logging

_TENSORFLOW = "tensorflow"


def drop_repeated_lines() -> None:
    """Make absl's log handler drop messages that TensorFlow's handler writes to the same stream.

    tf.app.run adds absl's handler to the root logger.
    """
    absl_logging.get_absl_handler().python_handler.addFilter(_is_written_once)


def _is_written_once(record: logging.LogRecord) -> bool:
    """Return whether absl's handler is to write a message."""
    if record.name.partition(".")[0] != _TENSORFLOW:
        return True
    stream = absl_logging.get_absl_handler().python_handler.stream
    handlers = logging.getLogger(_TENSORFLOW).handlers
    return all(getattr(handler, "stream", None) is not stream for handler in handlers)
