"""Computations of several replicas, lowered in the graph that they are built in, and run."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu

from tpuserve.lowering.live_graph import lower_in_place

v1 = tf.compat.v1


def config() -> Any:
    """Lets TPU ops be in the graph, unused."""
    return v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))


def run(
    computation: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    *,
    compiled: bool = True,
    times: int = 1,
) -> tuple[list[Any], Any]:
    """What each replica returns for its inputs, and the variables afterwards.

    Args:
      computation: returns one tensor.
      inputs: for each replica its arguments.
      compiled: whether XLA compiles.
      times: how often it runs.
    """
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=True):
        _, outputs = tpu.split_compile_and_replicate(
            computation, [[tf.constant(each) for each in one] for one in inputs]
        )
        twins = lower_in_place([each[0] for each in outputs], compiled=compiled).targets
        with v1.Session(config=config()) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(times):
                results = session.run(twins)
            variables = {each.op.name: each for each in v1.global_variables()}
            return results, session.run(variables)


def variable(name: str = "v", value: float = 0.0) -> Any:
    """A scalar variable."""
    return v1.get_variable(name, [], initializer=v1.constant_initializer(value))
