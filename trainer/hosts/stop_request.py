"""The request of another process of the cluster that training ends."""

import threading

_is_requested = threading.Event()


def request_stop() -> None:
    """Request that training of this process ends after the running loop; any thread may call."""
    _is_requested.set()


def is_stop_requested() -> bool:
    """Return whether another process has requested the end of training."""
    return _is_requested.is_set()
