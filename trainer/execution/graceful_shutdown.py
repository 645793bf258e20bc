"""The end of a training at Ctrl-C, and at SIGTERM with a checkpoint and exit code 0.

A training loop is the series of steps that one `session.run` makes.
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class KeyboardInterruptHook(tf.compat.v1.train.SessionRunHook):
    """Closes the session at Ctrl-C, and raises KeyboardInterrupt in place of the session's error.

    The object is a hook of the session, and a context manager for the code around the session.
    """

    def __init__(self) -> None:
        self._session: Any = None
        self._is_interrupted = False
        self._wakeup_sockets: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None
        # The SIGINT handler and the wakeup file descriptor that were set before the session.run.
        # They are restored after it. None while no session.run is in progress.
        self._previous: tuple[Any, int] | None = None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Store the session, which the thread closes at Ctrl-C."""
        self._session = session

    def before_run(self, run_context: Any) -> None:
        """Start to handle SIGINT, until `after_run`."""
        self._restore_handler()
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        # Replace only Python's default handler, or the handler of another KeyboardInterruptHook,
        # which exists if this run is an evaluation within training. A handler of the program stays.
        is_ours = isinstance(getattr(handler, "__self__", None), KeyboardInterruptHook)
        if not is_main or not (is_ours or handler is signal.default_int_handler):
            return
        if self._wakeup_sockets is None:
            self._wakeup_sockets = socket.socketpair()
            self._wakeup_sockets[1].setblocking(False)
            self._thread = threading.Thread(
                target=self._close_session_at_signal, name="keyboard-interrupt", daemon=True
            )
            self._thread.start()
        # Install a handler that only sets a flag. Python's default handler would raise
        # KeyboardInterrupt at an arbitrary instruction.
        signal.signal(signal.SIGINT, self._handle_signal)
        sender = self._wakeup_sockets[1].fileno()
        self._previous = handler, signal.set_wakeup_fd(sender, warn_on_full_buffer=False)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop handling SIGINT.

        Raises:
          KeyboardInterrupt: Ctrl-C was pressed during the run.
        """
        self._restore_handler()
        if self._is_interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> "KeyboardInterruptHook":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Stop handling SIGINT, and end the thread.

        Raises:
          KeyboardInterrupt: Ctrl-C was pressed. It replaces the error that the closed session
            raised.
        """
        self._restore_handler()
        if self._wakeup_sockets is not None:
            assert self._thread is not None
            self._wakeup_sockets[1].close()
            self._thread.join()
            self._wakeup_sockets[0].close()
            self._wakeup_sockets = None
        if self._is_interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    def _handle_signal(self, number: int, frame: Any) -> None:
        if self._is_interrupted:
            # At the second Ctrl-C, interrupt the main thread wherever it is. The first Ctrl-C only
            # closed the session, which does not stop a main thread that is outside of session.run.
            raise KeyboardInterrupt
        self._is_interrupted = True

    def _restore_handler(self) -> None:
        if self._previous is not None:
            handler, descriptor = self._previous
            self._previous = None
            signal.signal(signal.SIGINT, handler)
            signal.set_wakeup_fd(descriptor)

    def _close_session_at_signal(self) -> None:
        assert self._wakeup_sockets is not None
        while numbers := self._wakeup_sockets[0].recv(64):
            previous = self._previous
            if previous is not None and previous[1] >= 0:
                os.write(previous[1], numbers)
            if signal.SIGINT in numbers:
                self._session.close()


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
