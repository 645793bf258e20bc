"""Prevents the process from starting threads, as at the limit of a container."""

import contextlib
import threading
from collections.abc import Iterator

# No process has this much memory for the stack of a thread.
_TOO_LARGE_STACK_BYTES = 2**45


@contextlib.contextmanager
def no_new_threads() -> Iterator[None]:
    """Let `threading.Thread.start` raise RuntimeError ("can't start new thread") in a context."""
    before = threading.stack_size(_TOO_LARGE_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)
