"""Marks variables whose first dimension is the number of embedding ids in a batch.

A training step that delays the updates of embedding tables keeps the ids and gradients of a batch
in such variables, whose size therefore differs between batches.
"""

import numpy as np
from numpy.typing import NDArray

ATTRIBUTE = "_tpuserve_batch_rows"


def filler(dtype: np.dtype[np.generic]) -> int:
    """Return the value that fills padding rows: -1 for signed integers, 0 for other dtypes."""
    return -1 if np.issubdtype(dtype, np.signedinteger) else 0


def pad_rows(value: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    """Return an array with padding rows at its end.

    Args:
      value: an array [n, ...] of any dtype, where n is at most `rows`.
    """
    widths = [(0, rows - len(value)), *[(0, 0)] * (value.ndim - 1)]
    return np.pad(value, widths, constant_values=filler(value.dtype))
