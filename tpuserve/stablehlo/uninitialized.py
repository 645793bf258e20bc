"""Creates eager tensors that have a shape but take no memory."""

import math
import mmap
from typing import Any

import numpy as np
import tensorflow as tf

# Linux's MAP_NORESERVE, which Python's mmap does not define. Mapped pages take memory only when
# they are written.
_MAP_NORESERVE = 0x4000


def make_uninitialized_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an eager tensor of zeros that takes no memory, however large it is.

    A tensor of a type that tf.bitcast does not support, such as bool, is allocated normally.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex) or dtype.is_quantized:
        return tf.zeros(shape, dtype)
    num_bytes = math.prod(shape) * dtype.size
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    # Map one byte for an empty tensor, because mmap refuses a length of zero.
    pages = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
    raw = np.frombuffer(pages, np.uint8, num_bytes)
    byte_tensor = tf.experimental.dlpack.from_dlpack(raw.__dlpack__())
    byte_shape = shape if dtype.size == 1 else (*shape, dtype.size)
    return tf.bitcast(tf.reshape(byte_tensor, byte_shape), dtype)
