from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tpuserve.stablehlo import translator


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize(
    "dtype", [tf.float32, tf.bfloat16, tf.int64, tf.int8, tf.uint8, tf.complex64, tf.bool]
)
def test_a_tensor_has_its_shape_and_type_and_is_zero(dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = translator.make_uninitialized_tensor(shape, dtype)
    assert (tensor.shape, tensor.dtype) == (shape, dtype)
    assert not tf.cast(tensor, tf.bool).numpy().any()


def test_a_tensor_may_be_larger_than_the_machine() -> None:
    before = _resident_bytes()
    # The tensor has 400 GB.
    held = tf.Variable(translator.make_uninitialized_tensor((10**6, 10**5), tf.float32))
    assert held.shape == (10**6, 10**5)
    assert _resident_bytes() - before < 10**9


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096
