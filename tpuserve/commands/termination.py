"""SIGTERM as an interruption: what a command has started ends with it."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def terminable() -> Iterator[None]:
    """Within it, SIGTERM leaves by way of whatever is to be closed; the exit status is 143."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)
