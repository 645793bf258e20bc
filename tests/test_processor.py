"""The settings of `make test-other-processors` take effect: XLA and oneDNN obey them.

Each test detects whether the code that ran has a fused multiply-add (FMA) instruction, which SSE4
code does not have. FMA rounds once, and a multiplication and an addition round twice, so their
results differ.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.numeric

_CPU_HAS_FMA = " fma " in Path("/proc/cpuinfo").read_text()
# The square of this number, 1 + 2**-11 + 2**-24, does not fit into the 24 bits of a float32.
_A = np.float32(1 + 2**-12)
_SQUARE = np.float32(_A * _A)


def test_xla_uses_the_instructions_that_its_flag_allows() -> None:
    multiply_add = tf.function(lambda x, y: x * x + y, jit_compile=True)
    rest = multiply_add(tf.fill([64], _A), tf.fill([64], -_SQUARE)).numpy()
    # Without optimisations, XLA fuses no instructions.
    unfused = {"--xla_cpu_max_isa=SSE4_2", "--xla_backend_optimization_level=0"}
    is_fused = _CPU_HAS_FMA and not unfused.intersection(os.environ.get("XLA_FLAGS", "").split())
    np.testing.assert_array_equal(rest != 0, is_fused)


def test_onednn_uses_the_instructions_that_its_variable_allows() -> None:
    rows = np.zeros([64, 16], np.float32)
    rows[:, :2] = np.stack([np.float32(1), _A])
    weights = np.zeros([16, 16], np.float32)
    weights[:2] = np.stack([-_SQUARE, _A])[:, None]
    is_fused = _CPU_HAS_FMA and os.environ.get("ONEDNN_MAX_CPU_ISA") != "SSE41"
    np.testing.assert_array_equal((tf.constant(rows) @ weights).numpy() != 0, is_fused)


@pytest.mark.skipif("TF_ENABLE_ONEDNN_OPTS" not in os.environ, reason="TensorFlow's default")
def test_tensorflow_uses_onednn_where_the_variable_says_so() -> None:
    from tensorflow.python.framework.test_util import IsMklEnabled

    assert IsMklEnabled() == (os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1")


def test_there_are_as_many_threads_as_processors_that_may_be_used() -> None:
    setting = os.environ.get("TPUSERVE_TEST_PROCESSORS")
    assert setting is None or len(os.sched_getaffinity(0)) == int(setting)
