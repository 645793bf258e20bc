"""A program as a graph for the CPU or a GPU: one replica, a model_fn called once."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends import monitored_session as sessions
from trainer.backends.base import EvalGraph, PredictGraph, TrainGraph
from trainer.checkpoints import warm_start
from trainer.config.run_config import RunConfig
from trainer.config.tf_config import PS
from trainer.distribution.topology import VERBS
from trainer.execution import iterations_per_loop, run_graph, train_loop
from trainer.execution.keyboard_interrupt import KeyboardInterruptHook
from trainer.hooks import summaries
from trainer.hooks.training_hooks import StopAfterRunsHook
from trainer.inputs import input_pipeline
from trainer.model import eval_metrics
from trainer.model.model_program import ModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys

logger = logging.getLogger("tensorflow.trainer")


@dataclass(frozen=True)
class Model:
    """What model_fn has built in the default graph, with its input.

    Attributes:
      features: what model_fn got.
      spec: what it returned.
      hooks: what must run so that the input can be read.
    """

    features: Any
    spec: EstimatorSpec
    hooks: tuple[Any, ...]


def build(
    program: ModelProgram, input_fn: Callable[..., Any], mode: str, checkpoint: str | None
) -> Model:
    """The model of one mode, with its input.

    Args:
      program: what to build.
      input_fn: gives the input.
      mode: one of `ModeKeys`.
      checkpoint: what the variables will be restored from; None for initial values, or those of
        the program's warm start.

    Raises:
      CheckpointMismatch: the checkpoint holds a variable in another shape.
    """
    inputs = input_pipeline.build_inputs(program.call_input_fn(input_fn, mode))
    spec = program.call_model_fn(inputs.features, inputs.labels, mode).as_estimator_spec()
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    return Model(inputs.features, spec, inputs.hooks)


class LocalBackend:
    """The CPU or a GPU of this machine, or of the task that a session target names."""

    def __init__(self, master: str = "", device_fn: Callable[[Any], Any] | None = None) -> None:
        """Runs in this process, unless a session target is given.

        Args:
          master: session target.
          device_fn: takes an operation and gives its device.
        """
        self.master = master
        self._device_fn = device_fn
        self._interruption = KeyboardInterruptHook()

    def graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """A graph with one replica."""
        return run_graph.new_run_graph(config, has_single_replica=True, device_fn=self._device_fn)

    def training(
        self,
        program: ModelProgram,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: iterations_per_loop.IterationPlan,
    ) -> TrainGraph:
        """A loop around the step that model_fn has built.

        What a host_call reads waits for the steps of the loop, since it is built before.
        """
        model = build(program, input_fn, ModeKeys.TRAIN, checkpoint)
        summaries.add_loss_summary(model.spec.loss)
        steps = train_loop.build_train_loop(
            model.spec.train_op, model.spec.loss, global_step, plan.most
        )
        return TrainGraph(steps, model.spec, (*model.hooks, self._interruption))

    def evaluation(
        self,
        program: ModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> EvalGraph:
        """One batch of any size in each `session.run`."""
        model = build(program, input_fn, ModeKeys.EVAL, checkpoint)
        metrics = eval_metrics.build_spec_metrics(model.spec, model.features)
        stop = StopAfterRunsHook(steps)
        return EvalGraph(metrics, model.spec, (*model.hooks, stop), lambda: stop.done)

    def prediction(
        self,
        program: ModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> PredictGraph:
        """One batch of any size in each `session.run`."""
        model = build(program, input_fn, ModeKeys.PREDICT, checkpoint)
        fetches = select(model.spec.predictions)

        def batches(session: Any) -> Iterator[Any]:
            while not session.should_stop():
                try:
                    batch = session.run(fetches)
                except tf.errors.OutOfRangeError:
                    return
                yield batch

        return PredictGraph(batches, model.spec, model.hooks)

    def session_config(self, proto: Any) -> Any:
        """It needs nothing."""
        return proto

    def running(self) -> AbstractContextManager[Any]:
        """Errors are raised where they happen; Ctrl-C ends a loop at once."""
        return self._interruption


def place(program: ModelProgram, mode: str) -> LocalBackend:
    """Where a mode of a program runs off the TPU; the log says so.

    Raises:
      InvalidSetting: the cluster has workers, and nothing that holds their variables.
    """
    config = program.config
    found = _in_cluster(config, mode) if sessions.is_in_cluster(config) else None
    if found is None:
        master = config.evaluation_master if mode == ModeKeys.EVAL else config.master
        found = LocalBackend(master or "", config.device_fn)
    _say(program, mode, found)
    return found


def _in_cluster(config: RunConfig, mode: str) -> LocalBackend | None:
    """The place of a task among those that TF_CONFIG names; None for one by its target alone."""
    if mode == ModeKeys.TRAIN:
        device_fn = config.device_fn
        if device_fn is None and config.num_ps_replicas:
            device_fn = tf.compat.v1.train.replica_device_setter(
                worker_device=f"/job:{config.task_type}/task:{config.task_id}",
                cluster=config.cluster_spec,
            )
        if device_fn is None and not config.is_chief:
            raise InvalidSetting(
                f"{config.task_type} {config.task_id} cannot train: the cluster in TF_CONFIG has "
                f"{config.num_worker_replicas} workers and no job {PS!r} that would hold the "
                f"variables they share. Add one, or give RunConfig a device_fn."
            )
        return LocalBackend(config.master or "", device_fn)
    master = config.evaluation_master if mode == ModeKeys.EVAL else config.master
    if master != config.task.master:
        return None
    # Variables on parameter servers are shared by their names: a checkpoint that is restored
    # there would undo what workers have trained since.
    return LocalBackend(device_fn=config.device_fn)


def _say(program: ModelProgram, mode: str, where: LocalBackend) -> None:
    config = program.config
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if where.master:
        device = f"{where.master}, as {config.task_type} {config.task_id}"
        if config.num_ps_replicas:
            device += f", variables on {config.num_ps_replicas} parameter servers"
    size = getattr(program, "batch_sizes", {}).get(mode)
    logger.info("%s on %s%s", VERBS[mode], device, "" if size is None else f": batch {size}")
