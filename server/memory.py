"""Memory of what was unloaded, given back to the system."""

import ctypes
import gc
import os
from functools import cache
from typing import Any

# Read by TensorFlow. With oneDNN on it keeps all memory that models ever had in a pool of its own.
_SYSTEM_ALLOCATOR = "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"

# Names and numbers of GNU's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The largest there is: tensors above it are pages got anew, which cost more than to fill them.
_MMAP_BYTES = 32 << 20
# What may lie free: tensors of one request and the next.
_FREE_BYTES = 256 << 20


def be_returnable() -> None:
    """Has models' memory come from where `give_back` can return it; before TensorFlow is imported.

    What the environment says already has the last word.
    """
    os.environ.setdefault(_SYSTEM_ALLOCATOR, "1")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES)


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
