"""Copies values to memory that TensorFlow uses without a further copy."""

import numpy as np

from server.servables.servable import Array

# The alignment, in bytes, that an array needs so that TensorFlow uses the array without a copy.
# Source: EIGEN_MAX_ALIGN_BYTES, which TF_NewTensor compares with.
_ALIGNMENT = 64


def copy_aligned(values: Array) -> Array:
    """Copy values of shape [n] to memory that TensorFlow can use without a further copy."""
    octets = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    start = -octets.ctypes.data % _ALIGNMENT
    aligned: Array = octets[start : start + values.nbytes].view(values.dtype)
    np.copyto(aligned, values)
    return aligned
