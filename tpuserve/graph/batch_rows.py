"""Variables of a step with a row for each id of a batch, so that their size differs by batch.

The VarHandleOp of such a variable, and the ops that assign it in a step, have the attribute
`ATTRIBUTE`. The other dimensions are static.
The rows may be padded: a row of -1 in a variable of integers, and of 0 in any other, stands for no
id.
"""

import numpy as np
from numpy.typing import NDArray

ATTRIBUTE = "_tpuserve_batch_rows"


def filler(dtype: np.dtype[np.generic]) -> int:
    """Return the entries of padding: -1 in arrays of signed integers, else 0."""
    return -1 if np.issubdtype(dtype, np.signedinteger) else 0


def pad_rows(value: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    """Return an array with padding at its end, so that it has a given number of rows.

    Args:
      value: [at most rows, ...].
      rows: the number of rows.
    """
    widths = [(0, rows - len(value)), *[(0, 0)] * (value.ndim - 1)]
    return np.pad(value, widths, constant_values=filler(value.dtype))
