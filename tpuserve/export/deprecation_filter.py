"""TensorFlow's notes on its own old functions, kept from whoever cannot act on them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tpuserve.tensorflow_internals import deprecation

_lock = threading.Lock()
_inside = 0
_shown = True


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Keeps TensorFlow from logging that a function is deprecated which we call, not the user.

    TensorFlow's own `silence` stays on after an error, and when two threads leave it out of order.
    """
    global _inside, _shown
    with _lock:
        if not _inside:
            _shown = deprecation._PRINT_DEPRECATION_WARNINGS
            deprecation._PRINT_DEPRECATION_WARNINGS = False
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                deprecation._PRINT_DEPRECATION_WARNINGS = _shown
