"""Creates the graph for training, evaluation or prediction, with a seed and a global step."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from trainer import keras_internals
from trainer.config.run_config import RunConfig
from trainer.execution.single_replica_graph import SingleReplicaGraph
from trainer.execution.variable_values import VariableValueGraph
from trainer.tensorflow_internals import eager_context, is_op_determinism_enabled


def must_repeat_numbers() -> bool:
    """Return whether the program has set a seed, or asked TensorFlow for deterministic ops."""
    return (
        tf.compat.v1.get_default_graph().seed is not None
        or eager_context.global_seed() is not None
        or is_op_determinism_enabled()
    )


@contextmanager
def new_run_graph(
    config: RunConfig,
    *,
    has_single_replica: bool = False,
    use_resource: bool | None = True,
    device_fn: Callable[[Any], Any] | None = None,
) -> Iterator[Any]:
    """Create a new default graph with the run's seed and a global step; yield the global step.

    Variables of the graph are resource variables, because the training loop and a TPU computation
    cannot use reference variables.

    Args:
      device_fn: takes an operation and returns its device. It is called for all operations,
        including those of the global step. None leaves the placement to TensorFlow.
    """
    graph = SingleReplicaGraph() if has_single_replica else VariableValueGraph()
    with (
        graph.as_default(),
        graph.device(device_fn),
        _repeatable_layers(config.tf_random_seed),
    ):
        tf.compat.v1.set_random_seed(config.tf_random_seed)
        scope = tf.compat.v1.get_variable_scope()
        with tf.compat.v1.variable_scope(scope, use_resource=use_resource):
            yield tf.compat.v1.train.create_global_step()


@contextmanager
def _repeatable_layers(seed: int | None) -> Iterator[None]:
    # Let legacy Keras draw from a random generator with the run's seed.
    if seed is None:
        yield
        return
    seeds = keras_internals.SEED_GENERATOR
    previous = getattr(seeds, "generator", None)
    seeds.generator = random.Random(seed)
    try:
        yield
    finally:
        seeds.generator = previous
