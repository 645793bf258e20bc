"""sloppy_interleave, which interleaves datasets in an order that is not deterministic."""

from collections.abc import Callable
from typing import Any

from tensorflow.compat.v1.data.experimental import parallel_interleave


def sloppy_interleave(
    map_func: Callable[..., Any], cycle_length: Any, block_length: Any = 1
) -> Callable[[Any], Any]:
    """Return a transformation that maps elements to datasets and interleaves these datasets.

    The elements of the datasets are taken in the order in which they become ready. The
    transformation is an argument for Dataset.apply.
    """
    return parallel_interleave(map_func, cycle_length, block_length, sloppy=True)
