"""Measures the memory that a function allocates in Python."""

import tracemalloc
from collections.abc import Callable


def measure_bytes(function: Callable[[], object]) -> int:
    """Call a function, and return the largest memory, in bytes, that it uses at the same time."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
