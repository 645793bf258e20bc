"""Memory of what was unloaded, given back to the system."""

import ctypes
import gc
from functools import cache
from typing import Any


def give_back() -> None:
    """Frees what is garbage, and hands free pages back.

    Graphs are full of circles that only the collector finds, and the C library keeps what it has
    been given unless it is asked.
    """
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    # Only the C library of GNU has it.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
