"""Trains an Estimator with a strategy of several replicas: each runs on a PJRT device or core."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends.tpu.backend import TpuBackend
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.runtime_resolution import resolve_strategy_runtime
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.config.run_config import InputPipelineConfig, TPUConfig
from trainer.config.strategies import count_replicas
from trainer.distribution.replica_strategy import ReplicaStrategy
from trainer.distribution.topology import BatchTopology, Pipeline
from trainer.execution.source_locations import SourceLocations
from trainer.inputs import input_pipeline
from trainer.model.model_program import ModelProgram, unbound_argument_names
from trainer.model.spec import ModeKeys

logger = logging.getLogger("tensorflow.trainer")


@dataclass(frozen=True)
class StrategyTopology(BatchTopology):
    """The topology of a strategy: each replica takes batches of its own, of input_fn's size."""

    @property
    def batch_size_for_input_fn(self) -> int:
        """0, because input_fn does not ask for its batch size."""
        return 0

    def _check_batch_size(self) -> None:
        pass


@dataclass(frozen=True)
class StrategyProgram:
    """The program of one replica; see `trainer.backends.tpu.mode_context.StepProgram`."""

    program: ModelProgram
    topology: BatchTopology
    device_assignment: Any = None

    def call_model_fn(self, features: Any, labels: Any, mode: str) -> Any:
        """Call model_fn in the context of a replica of the strategy."""
        strategy = ReplicaStrategy(self.topology.replicas)
        return strategy.call_model_fn(self.program.call_model_fn, features, labels, mode)

    def pipeline_input(self, input_fn: Callable[..., Any], mode: str) -> Callable[[Pipeline], Any]:
        """Return a function that takes an input pipeline and calls input_fn for this pipeline."""

        def call(pipeline: Pipeline) -> Any:
            bound = input_fn
            if "input_context" in unbound_argument_names(input_fn):
                context = tf.distribute.InputContext(
                    len(self.topology.pipelines), pipeline.index, self.topology.replicas
                )
                bound = functools.partial(input_fn, input_context=context)
            return with_full_batches(self.program.call_input_fn(bound, mode))

        return call


def with_full_batches(dataset: Any) -> Any:
    """Return a Dataset without its smaller batches, because XLA compiles for one size."""
    if not isinstance(dataset, tf.data.Dataset):
        raise InvalidSetting(
            f"input_fn returned {dataset!r:.200}, and each replica of train_distribute takes a "
            f"batch of its own. Return a tf.data.Dataset."
        )
    unknown = [
        index
        for index, spec in enumerate(tf.nest.flatten(dataset.element_spec))
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape.as_list()[0] is None
    ]
    if not unknown:
        return dataset
    rows = _count_rows(dataset, unknown[0])
    logger.info("train: batches of input_fn with fewer than %d rows are left out", rows)

    @tf.autograph.experimental.do_not_convert
    def is_full(number: Any, element: Any) -> Any:
        found = tf.shape(tf.nest.flatten(element)[unknown[0]])[0]
        # A Dataset without any full batch would be searched without end if it is repeated.
        check = tf.debugging.Assert(
            tf.logical_or(number > 0, found >= rows),
            [
                f"The first batch of input_fn has fewer rows than its size, {rows}, and each "
                f"replica of train_distribute takes full batches. Call repeat() before batch(), "
                f"or make the batches smaller. Rows:",
                found,
            ],
        )
        with tf.control_dependencies([check]):
            return tf.equal(found, rows)

    @tf.autograph.experimental.do_not_convert
    def set_rows(number: Any, element: Any) -> Any:
        tensors = tf.nest.flatten(element)
        for index in unknown:
            shape = [rows, *tensors[index].shape.as_list()[1:]]
            tensors[index] = tf.ensure_shape(tensors[index], shape)
        return tf.nest.pack_sequence_as(element, tensors)

    return dataset.enumerate().filter(is_full).map(set_rows)


def _count_rows(dataset: Any, index: int) -> int:
    """Return the number of rows of full batches; of the first, if dataset.batch is not the last."""
    with tf.compat.v1.Session() as session:
        size = tf.raw_ops.ComputeBatchSize(input_dataset=tf.data.experimental.to_variant(dataset))
        rows = int(session.run(size))
        if rows < 1:
            iterator = input_pipeline.make_iterator(dataset)
            first = tf.nest.flatten(iterator.get_next())[index]
            session.run([iterator.initializer, tf.compat.v1.tables_initializer()])
            rows = int(session.run(tf.shape(first)[0]))
    return rows


def create_strategy_backend(program: ModelProgram) -> TpuBackend:
    """Create the backend that trains a program on the replicas of its strategy, and log these.

    Raises:
      InvalidSetting: this process has fewer PJRT devices, or cores of an emulated TPU.
    """
    config = program.config
    strategy = type(config.train_distribute).__name__
    source_locations = SourceLocations()
    runtime = resolve_strategy_runtime(config, source_locations.line_of)
    tpu_config = TPUConfig(per_host_input_for_training=InputPipelineConfig.PER_HOST_V2)
    topology = StrategyTopology(runtime.system, tpu_config, ModeKeys.TRAIN, None)
    topology.check()
    logger.info(
        "train with %s on %s%s: %d replicas, each with batches of input_fn of its own",
        strategy,
        runtime.system,
        runtime.describe(),
        topology.replicas,
    )
    assert topology.replicas == count_replicas(config.train_distribute)
    context = TpuModeContext(
        topology,
        runtime,
        ErrorRendezvous(),
        make_program=StrategyProgram,
    )
    return TpuBackend(config, context, source_locations)
