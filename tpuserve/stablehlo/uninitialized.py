"""Creates eager tensors of zeros that take no memory, for variables whose values are not read.

TensorFlow's XLA bridge needs only the shapes of variables to translate a computation.
"""

import math
import mmap
from typing import Any

import numpy as np
import tensorflow as tf

# The value of Linux's flag MAP_NORESERVE, which Python's mmap module does not define. With this
# flag, Linux reserves no memory for mapped pages: they take memory only when they are written.
_MAP_NORESERVE = 0x4000


def make_uninitialized_tensor(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an eager tensor of zeros that takes no memory, however large it is.

    Tensors of dtypes that tf.bitcast does not support, such as bool, take memory.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_complex) or dtype.is_quantized:
        return tf.zeros(shape, dtype)
    num_bytes = math.prod(shape) * dtype.size
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    # mmap does not accept a length of zero. For an empty tensor, map one byte.
    pages = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
    raw = np.frombuffer(pages, np.uint8, num_bytes)
    byte_tensor = tf.experimental.dlpack.from_dlpack(raw.__dlpack__())
    byte_shape = shape if dtype.size == 1 else (*shape, dtype.size)
    return tf.bitcast(tf.reshape(byte_tensor, byte_shape), dtype)
