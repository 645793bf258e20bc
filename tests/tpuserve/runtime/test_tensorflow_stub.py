"""The functions of the stub give the same results as TensorFlow's."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry, tensor_util

from tpuserve.runtime import tensorflow_stub
from tpuserve.saved_model.op_packages import NO_IMPORTS

_PROGRAM = """
import sys
from tpuserve.runtime import tensorflow_stub
from tpuserve.saved_model.op_packages import ImportedOps
tensorflow_stub.install_stub()
tensorflow_stub.install_op_registry(sys.stdin.buffer.read())
from tpuserve.tensorflow_internals import op_def_registry, tensor_util
assert op_def_registry.get("NoSuchOp") is None
sys.stdout.buffer.write(op_def_registry.get("TPUPartitionedCall").SerializeToString())
assert "numpy" in sys.modules and "tensorflow.python.client" not in sys.modules
"""


def test_op_definition_is_that_of_tensorflow() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=tensorflow_stub.serialized_op_list(NO_IMPORTS),
        stdout=-1,
        check=True,
    )
    expected = op_def_registry.get("TPUPartitionedCall")
    assert type(expected).FromString(ran.stdout) == expected


@pytest.mark.parametrize(
    "proto",
    [
        tf.make_tensor_proto([[0, 1], [2, 3]], tf.int32),
        tf.make_tensor_proto(np.array([[0, 2]], np.int32)),
        tf.make_tensor_proto(5, tf.int32, [1, 4]),
        tf.make_tensor_proto([], tf.int32, [0, 0]),
    ],
)
def test_constant_is_read_as_tensorflow_reads_it(proto: Any) -> None:
    actual, expected = tensorflow_stub._make_ndarray(proto), tensor_util.MakeNdarray(proto)
    assert (actual.tolist(), actual.shape) == (expected.tolist(), expected.shape)


@pytest.mark.parametrize("number", [0, 7, -1])
def test_constant_is_made_as_tensorflow_makes_it(number: int) -> None:
    assert tensorflow_stub._make_tensor_proto(number) == tensor_util.make_tensor_proto(number)


def test_constant_of_another_dtype_is_refused() -> None:
    with pytest.raises(TypeError):
        tensorflow_stub._make_ndarray(tf.make_tensor_proto(1.5))
