from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu

import tpuserve
from tests.trainer.compat.emulation import own
from tpuserve.export.tpu import tpu_call
from trainer.compat.emulation.active import find_active_emulated_tpu

pytestmark = pytest.mark.slow
v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def session_of_its_own() -> Iterator[None]:
    with own.emulated():
        yield


def test_a_graph_is_built_for_the_emulated_tpu_and_no_other() -> None:
    assert str(find_active_emulated_tpu()) == "emulated TPU of 8 cores, from emulated_tpu()"
    with tpuserve.devices.EmulatedTpu(tpuserve.devices.TpuSystem(8, 1)):
        assert find_active_emulated_tpu() is None


def test_eager_programs_have_no_sessions() -> None:
    with tf.init_scope():
        assert find_active_emulated_tpu() is not None
    found: list[Any] = []
    with tf.__internal__.eager_context.eager_mode():
        found.append(find_active_emulated_tpu())
    assert found == [None]


def test_an_export_keeps_its_tpu_ops() -> None:
    results = tpu_call.partitioned_call(lambda: tpu.rewrite(lambda: tf.constant(1.0)))
    assert results[0].op.type == "TPUPartitionedCall"
    (function,) = v1.get_default_graph().as_graph_def().library.function
    assert "TPUReplicateMetadata" in {each.op for each in function.node_def}


def test_a_computation_within_another_is_refused_as_by_tensorflow() -> None:
    with pytest.raises(ValueError, match="cannot be nested"):
        v1.tpu.rewrite(lambda: v1.tpu.rewrite(lambda: tf.constant(1.0)))
