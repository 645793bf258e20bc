"""A flag that is set when another process of a cluster asks this process to end training.

The other process asks for this after it has received a SIGTERM.
"""

import threading

_is_requested = threading.Event()


def request_stop() -> None:
    """Request that the training in this process ends after the current loop.

    Any thread may call this function.
    """
    _is_requested.set()


def is_stop_requested() -> bool:
    """Return whether `request_stop` has been called in this process."""
    return _is_requested.is_set()
