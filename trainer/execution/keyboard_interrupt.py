"""Ctrl-C that ends a `session.run` of many steps at once.

Python looks at a signal only between two of its own instructions, so a loop inside of TensorFlow
would first run to its end. Here a thread learns of the signal at once, and closes the session
under the loop.
"""

import os
import signal
import socket
import threading
from typing import Any

import tensorflow as tf


class KeyboardInterruptHook(tf.compat.v1.train.SessionRunHook):
    """Turns Ctrl-C in a run into a closed session, and that into KeyboardInterrupt.

    It is a hook of the session, and a context manager to be around it. Outside of the main
    thread, and where Ctrl-C has a handler of the caller's, it does nothing.
    """

    def __init__(self) -> None:
        """Nothing is watched before the first run."""
        self._session: Any = None
        self._is_interrupted = False
        self._ends: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None
        # What a run has replaced: the handler, and where Python wrote the numbers of signals.
        self._before: tuple[Any, int] | None = None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Learns of the session."""
        self._session = session

    def before_run(self, run_context: Any) -> None:
        """Begins to watch."""
        self._stop()
        is_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        # There is another one around an evaluation within training.
        is_ours = isinstance(getattr(handler, "__self__", None), KeyboardInterruptHook)
        if not is_main or not (is_ours or handler is signal.default_int_handler):
            return
        if self._ends is None:
            self._ends = socket.socketpair()
            self._ends[1].setblocking(False)
            self._thread = threading.Thread(target=self._watch, name="interruption", daemon=True)
            self._thread.start()
        # KeyboardInterrupt, raised wherever Python happens to be, would be mistaken for a defect
        # by what takes the session's error.
        signal.signal(signal.SIGINT, self._handle)
        sender = self._ends[1].fileno()
        self._before = handler, signal.set_wakeup_fd(sender, warn_on_full_buffer=False)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Leaves the signal to Python.

        Raises:
          KeyboardInterrupt: it came when the run was over.
        """
        self._stop()
        if self._is_interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> "KeyboardInterruptHook":
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Ends watching, however the last run has ended.

        Raises:
          KeyboardInterrupt: in place of what was said of a session that is closed.
        """
        self._stop()
        if self._ends is not None:
            assert self._thread is not None
            self._ends[1].close()
            self._thread.join()
            self._ends[0].close()
            self._ends = None
        if self._is_interrupted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None

    def _handle(self, number: int, frame: Any) -> None:
        if self._is_interrupted:
            # The first did not help: the main thread is not in the session.
            raise KeyboardInterrupt
        self._is_interrupted = True

    def _stop(self) -> None:
        if self._before is not None:
            handler, descriptor = self._before
            self._before = None
            signal.signal(signal.SIGINT, handler)
            signal.set_wakeup_fd(descriptor)

    def _watch(self) -> None:
        assert self._ends is not None
        while numbers := self._ends[0].recv(64):
            before = self._before
            if before is not None and before[1] >= 0:
                os.write(before[1], numbers)
            if signal.SIGINT in numbers:
                self._session.close()
