"""Builds the training step of an estimator, so that it can be compiled without a TPU."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.compilation import chips
from tpuserve.compilation.stats import CompileTarget
from tpuserve.compilation.topology_names import list_topologies
from tpuserve.compilation.train_step.step import SerializedStep
from tpuserve.compilation.train_step.train_step_report import count_devices
from tpuserve.errors import InvalidSetting
from tpuserve.pjrt.replica_step import ReplicaStep
from tpuserve.pjrt.step_loop import StepLayout
from tpuserve.pjrt.step_program import find_max_steps, round_up_capacity
from trainer.backends.tpu import training
from trainer.backends.tpu.mode_context import TpuModeContext, make_replica_program
from trainer.backends.tpu.tensorflow_runtime import TensorFlowRuntime
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.distribution.topology import BatchTopology, TpuSlice
from trainer.execution import run_graph, train_loop
from trainer.execution.source_locations import SourceLocations
from trainer.infeed import input_source
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import ModeKeys

# A placeholder for the session target of the TPU. The step is compiled and not run, so no session
# connects to this address.
_NO_MASTER = "grpc://none:1"


class TrainStepBuilder:
    """Builds the graph of a training run on a TPU, and extracts the step of one replica from it.

    Args:
      batch_axis: for each tensor of features and labels, the dimension that is the batch, or
        None for a tensor that every replica receives whole.
    """

    def __init__(
        self, program: TPUModelProgram, input_fn: Callable[..., Any], batch_axis: Any
    ) -> None:
        self._program, self._input_fn, self._batch_axis = program, input_fn, batch_axis
        self._steps: dict[tuple[int, int], SerializedStep] = {}

    def build(self, target: CompileTarget, batch_size: int) -> SerializedStep:
        """Return the training step of one replica, ready for libtpu's compiler.

        The step is built for a run with one replica on each device of the topology.

        Raises:
          InvalidSetting: the program uses several cores for a replica, num_shards is not the number
            of devices, or the replicas cannot share the batch equally.
          UnsupportedOnTpu: the step has an op that cannot run on PJRT devices.
        """
        cores_per_replica = self._program.config.tpu_config.num_cores_per_replica or 1
        if cores_per_replica > 1:
            raise InvalidSetting(
                f"num_cores_per_replica is {cores_per_replica}: a step that is split over several "
                f"cores cannot be compiled ahead of time. Leave num_cores_per_replica out."
            )
        devices = count_devices(target)
        shards = self._program.config.tpu_config.num_shards
        if shards not in (None, devices):
            fitting = [
                f"give --topology {named.name}, or "
                for named in list_topologies()
                if named.generation == chips.find_generation(target.name)
                and named.num_chips * target.devices_per_chip == shards
            ]
            raise InvalidSetting(
                f"TPUConfig num_shards is {shards}, and {target.name} has {devices} "
                f"{'device' if devices == 1 else 'devices'}. To compile for such a TPU, "
                f"{''.join(fitting[:1])}set num_shards to {devices}, or leave it out."
            )
        key = (devices, batch_size)
        if key not in self._steps:
            self._steps[key] = self._build(*key)
        return self._steps[key]

    def _build(self, replicas: int, batch_size: int) -> SerializedStep:
        config = self._program.config
        locations = SourceLocations()
        program = dataclasses.replace(
            self._program,
            model_fn=locations.recording(self._program.model_fn),
            batch_sizes={**self._program.batch_sizes, ModeKeys.TRAIN: batch_size},
        )
        system = TpuSlice(hosts=1, cores=replicas, job="worker")
        topology = BatchTopology(system, config.tpu_config, ModeKeys.TRAIN, batch_size)
        topology.check()
        context = TpuModeContext(
            topology, TensorFlowRuntime(system, _NO_MASTER), ErrorRendezvous(), self._batch_axis
        )
        with run_graph.new_run_graph(config) as global_step:
            training.build_train_graph(
                program,
                self._input_fn,
                global_step,
                None,
                train_loop.build_iteration_plan(config.tpu_config),
                context,
            )
            graph = tf.compat.v1.get_default_graph().as_graph_def()
            trained = {
                variable.op.name
                for variable in tf.compat.v1.trainable_variables()
                if variable.dtype.is_floating
            }
        step = ReplicaStep(graph, lambda node: locations.find_line(node.partition("@")[0]))
        if step.unknown_sizes:
            step = step.with_sizes(self._find_first_sizes(program, topology))
        checked = [
            index for index, variable in enumerate(step.variables) if variable.name in trained
        ]
        steps = min(train_loop.fixed_iterations(config.tpu_config), find_max_steps(step))
        return SerializedStep(
            step.module,
            tuple((tuple(spec.shape), spec.dtype.name) for spec in step.argument_specs()),
            StepLayout.from_step(step, checked),
            round_up_capacity(steps),
        )

    def _find_first_sizes(self, program: TPUModelProgram, topology: BatchTopology) -> list[int]:
        """Return sizes for the dimensions of the input whose size is not known statically."""
        pipeline = topology.local_pipelines[0]
        replica_program = make_replica_program(program, topology, device_assignment=None)
        call_input_fn = replica_program.pipeline_input(self._input_fn, topology.mode)
        with run_graph.new_run_graph(program.config), tf.device("/cpu:0"):
            source = input_source.build_input_source(
                call_input_fn(pipeline),
                topology,
                len(pipeline.replicas),
                batch_axis=self._batch_axis,
            )
            shapes = [tf.shape(tensor) for tensor in source.next_batch()]
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.tables_initializer())
                if source.initializer is not None:
                    session.run(source.initializer)
                values = session.run(shapes)
        return [
            round_up_capacity(int(shape[dimension]))
            for leaf, shape in zip(source.nest.leaves, values, strict=True)
            for dimension, size in enumerate(leaf.spec.shape)
            if size is None
        ]
