"""Graphs of programs for a TPU, built with TensorFlow's own TPU ops."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.pjrt.replica_step import ReplicaStep

v1 = tf.compat.v1
REPLICAS = 4


def build_program(
    step: Callable[[Any, Any], Any], shape: tuple[int | None, ...] = (3,), dtype: Any = tf.float32
) -> Any:
    """Build a program whose loop runs a step on four replicas; return its GraphDef.

    Args:
      step: takes a batch of the shape and the number of finished steps; returns an op.
      shape: the shape of a replica's batch.
      dtype: the type of the batch.
    """
    from tensorflow.python.ops import while_v2
    from tensorflow.python.tpu import tpu
    from tensorflow.python.tpu.ops import tpu_ops

    def computation(count: Any) -> Any:
        def body(iteration: Any) -> Any:
            (batch,) = tpu_ops.infeed_dequeue_tuple(dtypes=[dtype], shapes=[shape])
            with tf.control_dependencies([step(batch, iteration)]):
                return iteration + 1

        return while_v2.while_loop(
            lambda iteration: iteration < count, body, [tf.constant(0)], return_same_structure=False
        )

    with tf.Graph().as_default() as graph:
        count = v1.placeholder_with_default(1, [], name="iterations")
        tpu.replicate(computation, inputs=[[count]] * REPLICAS)
        return graph.as_graph_def()


def send(*tensors: Any) -> Any:
    """Add and return an op that sends tensors to the host."""
    from tensorflow.python.tpu.ops import tpu_ops

    return tpu_ops.outfeed_enqueue_tuple(list(tensors))


def variable(name: str, shape: tuple[int, ...] = ()) -> Any:
    with tf.init_scope():
        return v1.get_variable(name, shape, initializer=v1.zeros_initializer(), use_resource=True)


def make_step(
    step: Callable[[Any, Any], Any], shape: tuple[int | None, ...] = (3,), dtype: Any = tf.float32
) -> ReplicaStep:
    return ReplicaStep(build_program(step, shape, dtype))
