from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu

from tests.trainer.compat.emulation import own_session
from tpuserve.export.tpu import tpu_call
from trainer.compat.emulation.builders import find_active_emulated_tpu

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def emulated_tpu_graph() -> Iterator[None]:
    with own_session.emulated_tpu_graph():
        yield


def test_graph_is_built_for_an_emulated_tpu_only() -> None:
    assert str(find_active_emulated_tpu()) == "emulated TPU of 8 cores, from emulated_tpu()"
    # Undo the patch before the fixture ends the emulation, or it would begin again.
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("tpuserve.devices.tpu_system._emulated_in_process", None)
        assert find_active_emulated_tpu() is None


def test_eager_program_has_no_active_emulated_tpu() -> None:
    with tf.init_scope():
        assert find_active_emulated_tpu() is not None
    tpu_systems: list[Any] = []
    with tf.__internal__.eager_context.eager_mode():
        tpu_systems.append(find_active_emulated_tpu())
    assert tpu_systems == [None]


def test_export_keeps_its_tpu_ops() -> None:
    results = tpu_call.partitioned_call(lambda: tpu.rewrite(lambda: tf.constant(1.0)))
    assert results[0].op.type == "TPUPartitionedCall"
    (function,) = v1.get_default_graph().as_graph_def().library.function
    assert "TPUReplicateMetadata" in {node.op for node in function.node_def}


def test_nested_computation_is_refused_as_by_tensorflow() -> None:
    with pytest.raises(ValueError, match="cannot be nested"):
        v1.tpu.rewrite(lambda: v1.tpu.rewrite(lambda: tf.constant(1.0)))
