"""Records whether the program of this process has failed, so that exit handlers can check it.

Python calls the handlers of `atexit` after a success and after a failure alike, and does not pass
them the exit status.
"""

import builtins
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

_is_watching = False
_has_failed = False


def has_failed() -> bool:
    """Return whether an error, or `sys.exit` with a status other than 0, ends the program.

    The result is False before `watch` is called. It is also False if the program raises SystemExit
    itself, because only the functions sys.exit, exit and quit are watched.
    """
    return _has_failed


def watch() -> None:
    """Start to record errors that end the program, and calls of sys.exit, exit and quit.

    Later calls do nothing.
    """
    global _is_watching
    if _is_watching:
        return
    _is_watching = True
    excepthook = sys.excepthook

    def record_error(*arguments: Any) -> None:
        global _has_failed
        _has_failed = True
        excepthook(*arguments)

    sys.excepthook = record_error
    sys.exit = _record_status(sys.exit)
    for name in ("exit", "quit"):
        # The module site defines exit and quit, so they do not exist with Python's option -S.
        if hasattr(builtins, name):
            setattr(builtins, name, _record_status(getattr(builtins, name)))


def _record_status(exit_program: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that ends the program, so that the wrapper records the exit status.

    If the program catches the SystemExit and calls such a function again, the last status counts.

    Args:
      exit_program: the function, which takes the exit status and raises SystemExit.
    """

    @functools.wraps(exit_program)
    def record_and_exit(*arguments: Any, **named: Any) -> Any:
        global _has_failed
        # Record the status only in the main thread. In any other thread, SystemExit ends only that
        # thread, and not the program.
        if threading.current_thread() is threading.main_thread():
            code = SystemExit(*arguments, *named.values()).code
            # The codes None and 0 mean success. Any other code, such as a message, is a failure.
            _has_failed = code is not None and not (isinstance(code, int) and code == 0)
        return exit_program(*arguments, **named)

    return record_and_exit
