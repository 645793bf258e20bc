"""The graph that a mode builds in."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from trainer.config.run_config import RunConfig
from trainer.execution.single_replica_graph import SingleReplicaGraph


@contextmanager
def new_run_graph(
    config: RunConfig,
    *,
    has_single_replica: bool = False,
    device_fn: Callable[[Any], Any] | None = None,
) -> Iterator[Any]:
    """A new default graph with the run's seed and a global step; yields the global step.

    With `has_single_replica`, sums over replicas are built as identities: see `SingleReplicaGraph`.
    `device_fn` takes an operation and gives its device; the global step's, too.
    Variables made in it are resources: those can be captured by the training loop and by a TPU
    computation, and have the same names and checkpoints as the reference variables of version 1.
    """
    graph = SingleReplicaGraph() if has_single_replica else tf.Graph()
    with (
        graph.as_default(),
        graph.device(device_fn),
        _repeatable_layers(config.tf_random_seed),
    ):
        tf.compat.v1.set_random_seed(config.tf_random_seed)
        scope = tf.compat.v1.get_variable_scope()
        with tf.compat.v1.variable_scope(scope, use_resource=True):
            yield tf.compat.v1.train.create_global_step()


@contextmanager
def _repeatable_layers(seed: int | None) -> Iterator[None]:
    # The initializers of tf.layers do not look at the graph's seed: legacy Keras draws theirs from
    # a generator of its own, one a thread.
    if seed is None:
        yield
        return
    from tf_keras.src import backend

    previous = getattr(backend._SEED_GENERATOR, "generator", None)
    backend._SEED_GENERATOR.generator = random.Random(seed)
    try:
        yield
    finally:
        backend._SEED_GENERATOR.generator = previous
