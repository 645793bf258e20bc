"""Tuning of glibc's malloc, so that the operating system gets back unloaded models' memory."""

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

# An environment variable that TensorFlow reads. If it is not set, oneDNN keeps the memory of
# unloaded models in a pool.
_SYSTEM_ALLOCATOR = "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"

# Parameters of mallopt. Source: malloc.h of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The mmap threshold for serving: the largest that glibc accepts. A block above the threshold gets
# new pages at each allocation, which takes longer than filling a request's tensors.
_MMAP_THRESHOLD_BYTES = 32 << 20
# The trim threshold for serving: how much free memory a heap keeps, so that a request reuses the
# memory of the previous request's tensors.
_TRIM_THRESHOLD_BYTES = 256 << 20
# The value of both thresholds while models load or unload. It is small, so that each tensor of a
# model gets pages of its own, which return to the operating system when the tensor is freed.
# Smaller blocks come from a heap, and a heap retains up to the trim threshold of free memory, even
# after malloc_trim.
_MODEL_THRESHOLD_BYTES = 1 << 20

_lock = threading.Lock()
_num_active_moves = 0


def configure_malloc() -> None:
    """Set the allocator up for serving. Call this before TensorFlow is imported.

    Values that are already set by environment variables take precedence.
    """
    os.environ.setdefault(_SYSTEM_ALLOCATOR, "1")
    _set_thresholds(_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES)


@contextlib.contextmanager
def large_tensor_allocation() -> Iterator[None]:
    """Give large tensors pages of their own while a model is loaded or unloaded.

    The operating system gets these pages back as soon as a tensor is freed. Requests during this
    time also get new pages, which is slower. When the last of several simultaneous loads and
    unloads leaves the context, the thresholds of `configure_malloc` apply again.
    """
    global _num_active_moves
    with _lock:
        _num_active_moves += 1
        _set_thresholds(_MODEL_THRESHOLD_BYTES, _MODEL_THRESHOLD_BYTES)
    try:
        yield
    finally:
        with _lock:
            _num_active_moves -= 1
            if not _num_active_moves:
                _set_thresholds(_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES)


def trim_heap() -> None:
    """Collect garbage, and return the free pages of the heap to the operating system.

    Python's graph objects form reference cycles that only the garbage collector frees, and glibc
    keeps freed pages until malloc_trim.
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
    """Return glibc's malloc_trim; None with other C libraries."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
