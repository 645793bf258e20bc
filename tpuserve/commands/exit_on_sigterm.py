"""Turns SIGTERM into SystemExit, so that a command stops its processes and closes its files.

Without a signal handler, SIGTERM ends Python at once and no context manager is closed.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

# Type of the exception that Python has discarded → the signal whose handler has raised it.
_SIGNAL_OF_EXCEPTION: dict[type[BaseException], signal.Signals] = {
    SystemExit: signal.SIGTERM,
    KeyboardInterrupt: signal.SIGINT,
}
_RETRY_SECONDS = 0.01


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Exit with status 143 on SIGTERM inside a with block, after closing open context managers.

    If SIGTERM or SIGINT (Ctrl-C) arrives while Python runs a `__del__` method or collects garbage,
    Python discards the exception that the signal handler raises. The signal is then raised again
    after 10 ms.
    """
    discarded = signal.SIGTERM

    def retry_discarded(unraisable: Any) -> None:
        nonlocal discarded
        if unraisable.exc_type not in _SIGNAL_OF_EXCEPTION:
            previous_hook(unraisable)
            return
        discarded = _SIGNAL_OF_EXCEPTION[unraisable.exc_type]
        # Set a timer that raises the signal again. This hook cannot raise the exception itself,
        # because Python discards exceptions of sys.unraisablehook as well.
        signal.setitimer(signal.ITIMER_REAL, _RETRY_SECONDS)

    previous_sigterm = signal.signal(signal.SIGTERM, _exit_with_signal)
    previous_sigalrm = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(discarded))
    previous_hook, sys.unraisablehook = sys.unraisablehook, retry_discarded
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = previous_hook
        signal.signal(signal.SIGALRM, previous_sigalrm)
        signal.signal(signal.SIGTERM, previous_sigterm)


def _exit_with_signal(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)
