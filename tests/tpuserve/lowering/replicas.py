"""Helpers that lower and run a computation of several replicas."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.tpu import tpu

from tpuserve.lowering.live_graph import lower_in_place

v1 = tf.compat.v1


def config() -> Any:
    """Return a ConfigProto that allows TPU ops in the graph as long as no run needs them."""
    return v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))


def run_replicas(
    computation: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    *,
    compiled: bool = True,
    times: int = 1,
) -> tuple[list[Any], Any]:
    """Lower and run a computation of several replicas.

    Args:
      computation: the computation of one replica; returns one tensor.
      inputs: inputs[r] are the arguments of replica r.
      compiled: whether XLA compiles the clusters.
      times: how often the computation runs.

    Returns:
      The result of each replica, and variable name → value after the last run.
    """
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=True):
        _, outputs = tpu.split_compile_and_replicate(
            computation, [[tf.constant(value) for value in values] for values in inputs]
        )
        targets = lower_in_place([results[0] for results in outputs], compiled=compiled).targets
        with v1.Session(config=config()) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(times):
                results = session.run(targets)
            variables = {variable.op.name: variable for variable in v1.global_variables()}
            return results, session.run(variables)


def variable(name: str = "v", value: float = 0.0) -> Any:
    """Return a scalar variable."""
    return v1.get_variable(name, [], initializer=v1.constant_initializer(value))
