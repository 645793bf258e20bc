from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu
from tensorflow.python.tpu.ops import tpu_ops

from tpuserve.lowering.live_graph import lower_in_place

v1 = tf.compat.v1

DEVICES = [f"/job:worker/task:{index}" for index in range(2)]


def computation(x: Any) -> Any:
    """Gather from a variable, compute with an infeed's row, sum, and update the variable."""
    table = v1.get_variable("table", [4])
    (row,) = tpu_ops.infeed_dequeue_tuple([tf.float32], [[4]])
    total = v1.tpu.cross_replica_sum(tf.tanh(tf.gather(table, x) * row))
    with tf.control_dependencies([table.assign_sub(total, read_value=False)]):
        return tf.identity(total)


def test_each_replica_computes_on_its_device_and_variables_stay_together() -> None:
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=True):
        rows = [tf.constant([replica] * 4) for replica in range(2)]
        _, outputs = tpu.split_compile_and_replicate(computation, [[row] for row in rows])
        original = set(graph.get_operations())
        lower_in_place([results[0] for results in outputs], core_devices=DEVICES)
        lowered = [operation for operation in graph.get_operations() if operation not in original]

    def devices(*types: str) -> list[str]:
        return sorted(operation.device for operation in lowered if operation.type in types)

    assert devices("QueueDequeueV2") == DEVICES
    # The queues of the computation; then those that are closed at its end.
    assert devices("FIFOQueueV2") == sorted(DEVICES * 2)
    # What is done once for all replicas, such as the update, has no device.
    calls = devices("PartitionedCall", "StatefulPartitionedCall")
    assert [device for device in calls if device] == DEVICES
    # A gather runs beside the variable, also for each replica; only the rows leave.
    assert devices("ResourceGather") == ["", ""]
    assert set(devices("AddN")) == {""}
