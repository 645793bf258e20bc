"""Graceful shutdown at SIGTERM: end the training loop, save a checkpoint, and exit with code 0.

A training loop is the series of steps that one `session.run` makes.
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

logger = logging.getLogger("tensorflow.trainer")

_active_hook: "GracefulShutdownHook | None" = None


class GracefulExit(SystemExit):
    """Ends the process after SIGTERM, with exit code 0, unless the caller catches the exception."""

    def __init__(self) -> None:
        super().__init__(0)


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Stops training after the training loop (one `session.run`) in which SIGTERM arrived.

    Attributes:
      is_requested: whether SIGTERM has arrived.
      is_training: whether there is a session with variables that must be saved.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self.is_training = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Record that the session has variables, which must be saved before the process exits."""
        self.is_training = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Request that the session stops, if SIGTERM has arrived."""
        if self.is_requested:
            run_context.request_stop()


class StopWithTrainingHook(tf.compat.v1.train.SessionRunHook):
    """Stops an evaluation that runs between two training loops, once SIGTERM has arrived."""

    def __init__(self, training: GracefulShutdownHook) -> None:
        self._training = training

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Request that the session stops, if SIGTERM has arrived."""
        if self._training.is_requested:
            run_context.request_stop()


@contextmanager
def sigterm_watcher() -> Iterator[GracefulShutdownHook]:
    """Handle SIGTERM inside the context; yield the hook that stops training.

    At SIGTERM, training finishes its current `session.run` and saves a checkpoint, and then the
    process exits with code 0. If the process is not training, it exits at once. A second SIGTERM
    kills the process. A nested context shares the hook of the outer context. The context does not
    handle the signal if the caller has a handler for SIGTERM, or if the thread is not the main
    thread.

    Raises:
      GracefulExit: SIGTERM arrived.
    """
    global _active_hook
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and _active_hook is not None:
        with _exit_after_training(_active_hook):
            yield _active_hook
        return
    shutdown_hook = GracefulShutdownHook()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield shutdown_hook
        return

    def handle(number: int, frame: Any) -> None:
        if shutdown_hook.is_requested:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        shutdown_hook.is_requested = True
        if not shutdown_hook.is_training:
            raise GracefulExit
        logger.warning("SIGTERM: ending after this loop; a second one ends at once")

    _active_hook = shutdown_hook
    signal.signal(signal.SIGTERM, handle)
    try:
        with _exit_after_training(shutdown_hook):
            yield shutdown_hook
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _active_hook = None


@contextmanager
def _exit_after_training(shutdown_hook: GracefulShutdownHook) -> Iterator[None]:
    try:
        yield
    finally:
        shutdown_hook.is_training = False
    if shutdown_hook.is_requested:
        raise GracefulExit


def current_training_shutdown() -> GracefulShutdownHook | None:
    """Return the shutdown hook of the training run in this thread; None if there is no such run.

    With this hook, an evaluation between two training loops can stop when training must stop.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return (
        _active_hook if is_main and _active_hook is not None and _active_hook.is_training else None
    )
