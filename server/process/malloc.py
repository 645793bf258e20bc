"""Tunes glibc's malloc, so that the memory of unloaded models returns to the operating system."""

import contextlib
import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

# An environment variable that TensorFlow reads. If it is not "1", oneDNN in TensorFlow keeps the
# memory of unloaded models in a pool.
_SYSTEM_ALLOCATOR = "TF_ONEDNN_USE_SYSTEM_ALLOCATOR"

# The numbers of two parameters of glibc's mallopt. Source: malloc.h of glibc.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# The mmap threshold of malloc while serving, in bytes.
_MMAP_THRESHOLD_BYTES = 32 << 20
# The trim threshold of malloc while serving: the number of free bytes that a heap keeps, so that a
# request reuses the memory of an earlier request's tensors.
_TRIM_THRESHOLD_BYTES = 256 << 20
# The mmap threshold and the trim threshold, in bytes, while models load or unload. They are small,
# so that each large tensor of a model is allocated with mmap.
_MODEL_THRESHOLD_BYTES = 1 << 20

_lock = threading.Lock()
# The number of `with large_tensor_allocation()` bodies that run now: loads and unloads of models.
_num_active_moves = 0


def configure_malloc() -> None:
    """Set up the memory allocators for serving. Call this before TensorFlow is imported.

    The function sets TF_ONEDNN_USE_SYSTEM_ALLOCATOR, the environment variable that chooses the
    allocator of oneDNN, unless the variable is already set.
    """
    os.environ.setdefault(_SYSTEM_ALLOCATOR, "1")
    _set_thresholds(_MMAP_THRESHOLD_BYTES, _TRIM_THRESHOLD_BYTES)


@contextlib.contextmanager
def large_tensor_allocation() -> Iterator[None]:
    """Let malloc allocate each large block with mmap during the load or unload of a model.

    The memory of a tensor that was allocated in this way returns to the operating system as soon as
    the tensor is freed.
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
    """Run the garbage collector, and return the free memory of the heap to the operating system.

    The garbage collector is needed because TensorFlow's graph objects in Python have reference
    cycles. glibc keeps freed memory in its heap until malloc_trim is called.
    """
    gc.collect()
    trim_free_memory()


def trim_free_memory() -> None:
    """Return the free memory of the heap to the operating system, without a garbage collection."""
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
    """Return the function malloc_trim of glibc; None if the C library is not glibc."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
