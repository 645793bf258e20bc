"""Memory of what was unloaded, given back to the system."""

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator
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
# Both, while models come and go. The C library gives pieces below the first to any of its heaps,
# and of what is free at a heap's end less than the second stays, in each, also after a trim.
_MODEL_BYTES = 1 << 20

_lock = threading.Lock()
_models_that_move = 0


def be_returnable() -> None:
    """Has models' memory come from where `give_back` can return it; before TensorFlow is imported.

    What the environment says already has the last word.
    """
    os.environ.setdefault(_SYSTEM_ALLOCATOR, "1")
    _set_thresholds(_MMAP_BYTES, _FREE_BYTES)


@contextlib.contextmanager
def of_models() -> Iterator[None]:
    """While a model is loaded or unloaded: its large tensors get pages that nothing else is in.

    They are the system's again as soon as the tensors are freed. For requests, which get theirs
    so too meanwhile, that is slower: see `be_returnable`, whose settings come back with the end
    of the last that is in here.
    """
    global _models_that_move
    with _lock:
        _models_that_move += 1
        _set_thresholds(_MODEL_BYTES, _MODEL_BYTES)
    try:
        yield
    finally:
        with _lock:
            _models_that_move -= 1
            if not _models_that_move:
                _set_thresholds(_MMAP_BYTES, _FREE_BYTES)


def give_back() -> None:
    """Frees what is garbage, and hands free pages back.

    Graphs are full of circles that only the collector finds, and the C library keeps what it has
    been given unless it is asked.
    """
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def _set_thresholds(mmap_bytes: int, trim_bytes: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, mmap_bytes)
        mallopt(_M_TRIM_THRESHOLD, trim_bytes)


@cache
def _malloc_trim() -> Any:
    # Only the C library of GNU has it.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
