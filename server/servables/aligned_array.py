"""Copies arrays to aligned memory, which TensorFlow can use without a further copy."""

import numpy as np

from server.servables.servable import Array

# The alignment, in bytes, that the memory of an array must have so that TensorFlow uses it without
# a copy. Source: EIGEN_MAX_ALIGN_BYTES, which TF_NewTensor checks.
_ALIGNMENT = 64


def copy_aligned(values: Array) -> Array:
    """Copy values of shape [n] to aligned memory, which TensorFlow can use without a copy."""
    octets = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    start = -octets.ctypes.data % _ALIGNMENT
    aligned: Array = octets[start : start + values.nbytes].view(values.dtype)
    np.copyto(aligned, values)
    return aligned
