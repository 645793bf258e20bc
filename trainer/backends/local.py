"""The local backend: one replica on the CPU or a GPU of a machine."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, UncompilableStep
from trainer.backends import monitored_session
from trainer.backends.base import EvalGraph, PredictGraph, TrainGraph
from trainer.checkpoints import warm_start
from trainer.config.run_config import RunConfig
from trainer.config.tf_config import PS
from trainer.distribution.topology import VERBS
from trainer.execution import run_graph, train_loop
from trainer.execution.graceful_shutdown import KeyboardInterruptHook
from trainer.execution.source_locations import SourceLocations
from trainer.hooks import event_files
from trainer.hooks.training_hooks import StopAfterRunsHook
from trainer.inputs import input_pipeline
from trainer.model import eval_metrics
from trainer.model.model_program import ModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys

logger = logging.getLogger("tensorflow.trainer")


@dataclass(frozen=True)
class _ModelGraph:
    """The ops that model_fn and input_fn have built in the default graph."""

    inputs: input_pipeline.Inputs
    spec: EstimatorSpec


def _build_model(
    program: ModelProgram, input_fn: Callable[..., Any], mode: str, checkpoint: str | None
) -> _ModelGraph:
    inputs = input_pipeline.build_inputs(program.call_input_fn(input_fn, mode))
    spec = program.call_model_fn(inputs.features, inputs.labels, mode).as_estimator_spec()
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    return _ModelGraph(inputs, spec)


class LocalBackend:
    """Runs one mode on a CPU or GPU of this machine, or of the machine at a session target.

    See `trainer.backends.base.ExecutionBackend`.

    Args:
      device_fn: takes an operation and returns its device; None to let TensorFlow choose.
    """

    def __init__(self, master: str = "", device_fn: Callable[[Any], Any] | None = None) -> None:
        self.master = master
        self._device_fn = device_fn
        self._interrupt_hook = KeyboardInterruptHook()

    def new_graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """Return a context with a new default graph, for one replica.

        A CrossReplicaSum that model_fn builds in this graph becomes an identity, because there is
        only one replica; see `SingleReplicaGraph`.
        """
        return run_graph.new_run_graph(config, has_single_replica=True, device_fn=self._device_fn)

    def build_train_graph(
        self,
        program: ModelProgram,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: train_loop.IterationPlan,
        compile_step: bool | str = False,
        hooks: Sequence[Any] = (),
    ) -> TrainGraph:
        """Build the graph that trains a model, with a loop of several steps per `session.run`.

        The loop repeats model_fn's train_op. A host_call runs in each step too, because its ops
        are dependencies of the train_op.

        The arguments are those of `ExecutionBackend.build_train_graph`.
        """
        model = _build_model(program, input_fn, ModeKeys.TRAIN, checkpoint)
        event_files.add_loss_summary(model.spec.loss)
        locations = SourceLocations()
        locations.record(tf.compat.v1.get_default_graph())
        loop = train_loop.build_train_loop(
            model.spec.train_op,
            model.spec.loss,
            global_step,
            plan.max_iterations,
            self._check_compile_step(compile_step),
            locations.line_of,
        )
        return TrainGraph(loop, model.spec, (*model.inputs.hooks, self._interrupt_hook))

    def _check_compile_step(self, compile_step: bool | str) -> bool | str:
        reason = ""
        if self.master:
            reason = f"the session runs at {self.master}"
        elif self._device_fn is not None:
            reason = "a device_fn places the ops"
        elif tf.config.list_physical_devices("GPU"):
            reason = "the step runs on a GPU"
        if reason and compile_step is True:
            raise UncompilableStep(
                f"RunConfig has compile_step=True, and {reason}. XLA compiles a step only for the "
                f"CPU of this process. Leave compile_step out."
            )
        if reason or (compile_step is not True and run_graph.must_repeat_numbers()):
            return False
        return compile_step

    def build_eval_graph(
        self,
        program: ModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> EvalGraph:
        """Build the graph that evaluates a model, one batch of any size per `session.run`.

        The arguments are those of `ExecutionBackend.build_eval_graph`.
        """
        model = _build_model(program, input_fn, ModeKeys.EVAL, checkpoint)
        metrics = eval_metrics.build_spec_metrics(
            model.spec, model.inputs.features, model.inputs.labels
        )
        if model.inputs.read is not None:
            metrics = replace(metrics, update=tf.group(metrics.update, model.inputs.read))
        stop = StopAfterRunsHook(steps)
        return EvalGraph(metrics, model.spec, (stop,), model.inputs.hooks, lambda: stop.done)

    def build_predict_graph(
        self,
        program: ModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> PredictGraph:
        """Build the graph that predicts with a model, one batch of any size per `session.run`.

        The arguments are those of `ExecutionBackend.build_predict_graph`.
        """
        model = _build_model(program, input_fn, ModeKeys.PREDICT, checkpoint)
        fetches = select(model.spec.predictions), model.inputs.read or tf.no_op()

        def read_batches(session: Any) -> Iterator[Any]:
            while not session.should_stop():
                try:
                    batch, _ = session.run(fetches)
                except tf.errors.OutOfRangeError:
                    return
                yield batch

        return PredictGraph(read_batches, model.spec, input_hooks=model.inputs.hooks)

    def create_session(
        self, config: RunConfig, scaffold: Any, hooks: Sequence[Any], **options: Any
    ) -> Any:
        """Create a MonitoredSession that runs at the backend's session target (master).

        The arguments are those of `ExecutionBackend.create_session`.
        """
        proto = monitored_session.config_proto(config)
        return monitored_session.create_monitored_session(
            config, self.master, proto, scaffold, hooks, **options
        )

    def run_scope(self) -> AbstractContextManager[Any]:
        """Return a context in which Ctrl-C ends a training loop at once.

        After Ctrl-C, the context replaces an error of the session by a KeyboardInterrupt. It passes
        all other errors on unchanged.
        """
        return self._interrupt_hook


def create_local_backend(program: ModelProgram, mode: str) -> LocalBackend:
    """Create the backend for one mode of a program on a CPU or GPU, and log the device.

    Raises:
      InvalidSetting: this process is to train as a worker, but the cluster has no parameter server
        to hold the variables, and RunConfig has no device_fn.
    """
    config = program.config
    backend = None
    if monitored_session.is_in_cluster(config):
        backend = _create_cluster_backend(config, mode)
    if backend is None:
        master = config.evaluation_master if mode == ModeKeys.EVAL else config.master
        backend = LocalBackend(master or "", config.device_fn)
    _log_device(program, mode, backend)
    return backend


def _create_cluster_backend(config: RunConfig, mode: str) -> LocalBackend | None:
    """Create the backend of a process that is a task of the cluster in TF_CONFIG."""
    if mode == ModeKeys.TRAIN:
        device_fn = config.device_fn
        if device_fn is None and config.num_ps_replicas:
            device_fn = tf.compat.v1.train.replica_device_setter(
                worker_device=f"/job:{config.task_type}/task:{config.task_id}",
                cluster=config.cluster_spec,
            )
        if device_fn is None and not config.is_chief and config.task.jobs:
            raise InvalidSetting(
                f"{config.task_type} {config.task_id} cannot train: the cluster in TF_CONFIG has "
                f"{config.num_worker_replicas} workers and no job {PS!r} to hold the variables "
                f"that they share. Add one, give RunConfig a device_fn, or let all train together: "
                f"a TPUEstimator with use_tpu=True, on PJRT devices (docs/clusters.md)."
            )
        return LocalBackend(config.master or "", device_fn)
    master = config.evaluation_master if mode == ModeKeys.EVAL else config.master
    if master != config.task.master:
        return None
    # Evaluate or predict in a local session. In a session of the cluster, restoring a checkpoint
    # would overwrite the variables on the parameter servers while the workers train them.
    return LocalBackend(device_fn=config.device_fn)


def _log_device(program: ModelProgram, mode: str, backend: LocalBackend) -> None:
    config = program.config
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if backend.master:
        device = f"{backend.master}, as {config.task_type} {config.task_id}"
        if config.num_ps_replicas:
            device += f", variables on {config.num_ps_replicas} parameter servers"
    size = getattr(program, "batch_sizes", {}).get(mode)
    logger.info("%s on %s%s", VERBS[mode], device, "" if size is None else f": batch {size}")
