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
    """The exception that ends the process with exit code 0 after SIGTERM, unless it is caught."""

    def __init__(self) -> None:
        super().__init__(0)


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Stops training after the training loop (one `session.run`) in which SIGTERM arrived.

    Attributes:
      is_training: whether there is a session with variables that must be saved.
    """

    def __init__(self) -> None:
        self.has_sigterm = False
        self.is_training = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Record that training has begun, so that SIGTERM does not end the process at once."""
        self.is_training = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Request that the session stops, if SIGTERM has arrived."""
        if self.has_sigterm:
            run_context.request_stop()


class StopWithTrainingHook(tf.compat.v1.train.SessionRunHook):
    """Stops an evaluation that runs between two training loops, once SIGTERM has arrived."""

    def __init__(self, training: GracefulShutdownHook) -> None:
        self._training = training

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Request that the session stops, if SIGTERM has arrived."""
        if self._training.has_sigterm:
            run_context.request_stop()


@contextmanager
def sigterm_watcher() -> Iterator[GracefulShutdownHook]:
    """Handle SIGTERM inside the context; yield the hook that stops training.

    At SIGTERM, training finishes its current `session.run` and saves a checkpoint, and then the
    process exits with code 0.
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
        if shutdown_hook.has_sigterm:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        shutdown_hook.has_sigterm = True
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
    if shutdown_hook.has_sigterm:
        raise GracefulExit


def current_training_shutdown() -> GracefulShutdownHook | None:
    """Return the shutdown hook of the training run in this thread; None if there is no such run.

    An evaluation that runs between two training loops watches this hook, so that it stops too when
    training must stop.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return (
        _active_hook if is_main and _active_hook is not None and _active_hook.is_training else None
    )
