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

_watching: "GracefulShutdownHook | None" = None


class GracefulExit(SystemExit):
    """A run has ended because the process was asked to end; uncaught, it exits with 0."""

    def __init__(self) -> None:
        super().__init__(0)


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Stops a training after the loop in which a request to end came.

    Attributes:
      is_asked_for: whether it came.
      is_training: whether there is a session, whose variables would be lost.
    """

    def __init__(self) -> None:
        self.is_asked_for = False
        self.is_training = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """From now on there is something to save."""
        self.is_training = True

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops, if asked to."""
        if self.is_asked_for:
            run_context.request_stop()


class StopWithTrainingHook(tf.compat.v1.train.SessionRunHook):
    """Stops a run that the loop of a training waits for, once the training is asked to end."""

    def __init__(self, training: GracefulShutdownHook) -> None:
        self._training = training

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops, if the training will."""
        if self._training.is_asked_for:
            run_context.request_stop()


@contextmanager
def sigterm_watcher() -> Iterator[GracefulShutdownHook]:
    """Watches for SIGTERM meanwhile; gives the hook that stops a training at it.

    At the signal a training ends its loop and saves, and then the process ends with 0; where no
    training runs, it ends so at once. A second SIGTERM kills it. What watches within what watches
    already shares its hook. Where the signal has a handler of the caller's, or in a thread that
    is not the main one, nothing is watched.

    Raises:
      Terminated: the process was asked to end.
    """
    global _watching
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and _watching is not None:
        with _until_trained(_watching):
            yield _watching
        return
    termination = GracefulShutdownHook()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield termination
        return

    def handle(number: int, frame: Any) -> None:
        if termination.is_asked_for:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        termination.is_asked_for = True
        if not termination.is_training:
            raise GracefulExit
        logger.warning("SIGTERM: ending after this loop; a second one ends at once")

    _watching = termination
    signal.signal(signal.SIGTERM, handle)
    try:
        with _until_trained(termination):
            yield termination
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _watching = None


@contextmanager
def _until_trained(termination: GracefulShutdownHook) -> Iterator[None]:
    try:
        yield
    finally:
        termination.is_training = False
    if termination.is_asked_for:
        raise GracefulExit


def current_training_shutdown() -> GracefulShutdownHook | None:
    """The hook of the training whose loop this runs between; None where there is none."""
    is_main = threading.current_thread() is threading.main_thread()
    return _watching if is_main and _watching is not None and _watching.is_training else None
