"""Records that another process of the cluster has asked this process to end its training."""

import threading

_is_requested = threading.Event()


def request_stop() -> None:
    """Request that the training in this process ends after the current loop.

    Any thread may call this function.
    """
    _is_requested.set()


def is_stop_requested() -> bool:
    """Return whether `request_stop` has been called, because another process must end."""
    return _is_requested.is_set()
