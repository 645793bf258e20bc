"""Tensors that have a shape and no memory."""

import math
import mmap
from typing import Any

import numpy as np
import tensorflow as tf

# Pages count only once they are written to, however much is mapped. Linux' number: Python's mmap
# has no name for it.
_NO_RESERVE = 0x4000


def make_uninitialized_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    """An eager tensor whose values are zeros that nobody has written, of any size.

    A type that no other can be taken for, such as bool, is written after all.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex) or dtype.is_quantized:
        return tf.zeros(shape, dtype)
    count = math.prod(shape) * dtype.size
    # mmap takes no empty range.
    pages = mmap.mmap(-1, max(count, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    taken = tf.experimental.dlpack.from_dlpack(np.frombuffer(pages, np.uint8, count).__dlpack__())
    elements = shape if dtype.size == 1 else (*shape, dtype.size)
    return tf.bitcast(tf.reshape(taken, elements), dtype)
