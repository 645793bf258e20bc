"""SIGTERM as an interruption: what a command has started ends with it."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

# What a signal raises → the signal.
_RAISED_BY: dict[type[BaseException], signal.Signals] = {
    SystemExit: signal.SIGTERM,
    KeyboardInterrupt: signal.SIGINT,
}
_AGAIN_SECONDS = 0.01


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Within it, SIGTERM leaves by way of whatever is to be closed; the exit status is 143.

    A signal that comes while Python frees an object or collects garbage raises where all that is
    raised is dropped. It comes again a moment later, as Ctrl-C does.
    """
    lost = signal.SIGTERM

    def again(unraisable: Any) -> None:
        nonlocal lost
        if unraisable.exc_type not in _RAISED_BY:
            hook_before(unraisable)
            return
        lost = _RAISED_BY[unraisable.exc_type]
        # Not at once: what calls this drops what is raised, too.
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    before = signal.signal(signal.SIGTERM, _terminate)
    alarm_before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(lost))
    hook_before, sys.unraisablehook = sys.unraisablehook, again
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook_before
        signal.signal(signal.SIGALRM, alarm_before)
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)
