"""A request to end, SIGTERM, taken as: finish the loop, save, and exit with 0."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

logger = logging.getLogger("tensorflow.trainer")


class Termination(tf.compat.v1.train.SessionRunHook):
    """Stops a run after the loop in which a request to end came.

    Attributes:
      is_asked_for: whether it came.
    """

    def __init__(self) -> None:
        self.is_asked_for = False

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops, if asked to."""
        if self.is_asked_for:
            run_context.request_stop()


@contextmanager
def watched() -> Iterator[Termination]:
    """Watches for SIGTERM meanwhile; gives the hook that stops the run at it.

    A run that has ended in peace, asked to, ends the process with 0. A second SIGTERM ends it at
    once. Where the signal has a handler of the caller's, or in a thread that is not the main one,
    nothing is watched.

    Raises:
      SystemExit: with 0, after a run that was asked to end.
    """
    termination = Termination()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield termination
        return

    def handle(number: int, frame: Any) -> None:
        if termination.is_asked_for:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        termination.is_asked_for = True
        logger.warning("SIGTERM: ending after this loop; a second one ends at once")

    signal.signal(signal.SIGTERM, handle)
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if termination.is_asked_for:
        raise SystemExit(0)
