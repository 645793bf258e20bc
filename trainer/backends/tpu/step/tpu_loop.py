"""A step put into the loop that all replicas run, with TensorFlow's own TPU ops."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.backends.tpu.step.loop_pruning import prune_while_body
from trainer.distribution.topology import BatchTopology
from trainer.tensorflow_internals import tpu, while_v2


def build_tpu_loop(
    step: Callable[[Any], Any],
    iterations: Any,
    topology: BatchTopology,
    device_assignment: Any = None,
) -> tuple[Any, Any]:
    """The ops that compile, and that run, a step a number of times on every replica.

    Args:
      step: called once, inside of the loop, with the number of steps that are done; gives the op
        to run in each.
      iterations: int32 scalar of the host: how many times.
      topology: how many replicas there are.
      device_assignment: which cores each of them has; None for one core each, in order.

    Returns:
      The status of the compilation, and a tensor that is there when all replicas are done.
    """

    def computation(count: Any) -> Any:
        def body(done: Any) -> Any:
            with tf.control_dependencies([step(done)]):
                return done + 1

        return while_v2.while_loop(
            lambda done: done < count,
            body,
            [tf.constant(0)],
            parallel_iterations=1,
            return_same_structure=False,
            name="steps",
        )

    before = len(tf.compat.v1.get_default_graph().get_operations())
    compiled, outputs = tpu.split_compile_and_replicate(
        computation,
        inputs=[[iterations]] * topology.replicas,
        device_assignment=device_assignment,
        name="replicas",
    )
    graph = tf.compat.v1.get_default_graph()
    (loop,) = (each for each in graph.get_operations()[before:] if each.type == "While")
    prune_while_body(loop)
    _forget_what_is_inside(graph)
    return compiled, outputs[0][0]


def _forget_what_is_inside(graph: Any) -> None:
    # The step shares the graph's collections. Whoever looks into them later, as a saver of
    # summaries does, could do nothing with tensors of the computation.
    for name in graph.get_all_collection_keys():
        members = graph.get_collection_ref(name)
        members[:] = [each for each in members if getattr(each, "graph", graph) is graph]
