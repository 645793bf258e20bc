"""Several datasets at a time, in whatever order their elements come."""

from collections.abc import Callable
from typing import Any

from tensorflow.compat.v1.data.experimental import parallel_interleave


def sloppy_interleave(
    map_func: Callable[..., Any], cycle_length: Any, block_length: Any = 1
) -> Callable[[Any], Any]:
    """Elements of several datasets at a time: whichever is ready first.

    Args:
      map_func: element → dataset.
      cycle_length: datasets read at a time.
      block_length: elements in a row from one of them.
    """
    return parallel_interleave(map_func, cycle_length, block_length, sloppy=True)
