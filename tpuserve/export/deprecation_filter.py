"""Suppresses TensorFlow's deprecation warnings about functions that tpuserve itself calls."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tpuserve.tensorflow_internals import deprecation

_lock = threading.Lock()
_active_blocks = 0
_previous_setting = True


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Suppress TensorFlow's deprecation warnings inside a with block."""
    global _active_blocks, _previous_setting
    with _lock:
        if not _active_blocks:
            _previous_setting = deprecation._PRINT_DEPRECATION_WARNINGS
            deprecation._PRINT_DEPRECATION_WARNINGS = False
        _active_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _active_blocks -= 1
            if not _active_blocks:
                deprecation._PRINT_DEPRECATION_WARNINGS = _previous_setting
