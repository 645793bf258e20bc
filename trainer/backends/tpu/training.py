"""Training on a TPU: builds the loop of training steps for all replicas."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_table import op_spec
from trainer.backends.base import TrainGraph
from trainer.backends.tpu import captured_tensors, host_parts, nan_errors
from trainer.backends.tpu.captured_tensors import StepOutputVariables, TensorCapture
from trainer.backends.tpu.host_parts import HostCallPart, StepPart
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.replicated_step import ReplicatedStep
from trainer.checkpoints import warm_start
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology
from trainer.execution import train_loop
from trainer.execution.train_loop import TrainLoop
from trainer.hooks import event_files
from trainer.infeed import ReplicaBatch
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")


def build_train_graph(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    global_step: Any,
    checkpoint: str | None,
    plan: train_loop.IterationPlan,
    context: TpuModeContext,
    hooks: Sequence[Any] = (),
) -> TrainGraph:
    """Build the graph that trains a model on all replicas, in the default graph.

    Args:
      checkpoint: the checkpoint that the variables will be restored from; None for initial values.
      hooks: the user's hooks. Those of model_fn are in its spec.
    """
    config = program.config.tpu_config
    train_part = _TrainStepPart(context.topology, hooks)
    step = ReplicatedStep(
        program,
        input_fn,
        context,
        [train_part, HostCallPart()],
        outfeed_every_n_steps=config.experimental_host_call_every_n_steps,
    )
    done = step.build_loop()
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    connected = step.connect(
        done,
        make_hook=config.experimental_feed_hook,
        sleep_secs=config.initial_infeed_sleep_secs or 0,
    )
    loss = captured_tensors.read_after(train_part.loss, connected.done, train_part.loss_name)
    with tf.control_dependencies([connected.done]):
        step_after = tf.identity(global_step.read_value(), name="global_step_after")
    train_part.capture.restore_for_hooks(connected.done)
    event_files.add_loss_summary(loss)
    checks = [] if context.runtime.checks_variables else _check_variables_after(connected.done)
    train_op = tf.group(connected.done.op, *checks)
    return TrainGraph(
        TrainLoop(
            step.iterations,
            train_op,
            loss,
            step_after,
            plan.max_iterations,
            connected.infeed_outfeed_hook.send_next_batch_signal,
        ),
        _build_host_spec(step.spec, loss, train_op),
        (*connected.hooks, train_part.capture.fetches_hook),
    )


class _TrainStepPart(StepPart):
    """Runs the train_op in each step, and copies the tensors that the host reads after the loop."""

    name = "train_step"

    def __init__(self, topology: BatchTopology, hooks: Sequence[Any]) -> None:
        self._topology, self._hooks = topology, hooks
        self._outputs = StepOutputVariables(topology.replicas)
        self.capture = TensorCapture(self._outputs)
        self.loss: Any = None
        self.loss_name = "loss"

    def dequeue(self, batch: ReplicaBatch) -> ReplicaBatch:
        """Record which summaries exist before model_fn is called; return the batch unchanged."""
        self.capture.start()
        return batch

    def step_ops(self, spec: Any) -> Sequence[Any]:
        """Return the train_op, and the ops that copy the loss and the captured tensors."""
        _check_sums_over_replicas(self._topology)
        self.loss_name = spec.loss.op.name
        with tf.control_dependencies([spec.train_op]):
            loss = tf.identity(tf.cast(tf.reshape(spec.loss, []), tf.float32))
        self.loss = self._outputs.store(loss, "loss")
        self.capture.capture_summaries()
        hooks = (*self._hooks, *(spec.training_hooks or ()))
        self.capture.capture_hook_tensors(hooks, {id(spec.loss): self.loss})
        return [spec.train_op, *self._outputs.writes]


def _check_variables_after(done: Any) -> list[Any]:
    """Build ops that fail if a trainable variable is NaN or infinite after a training loop."""
    with tf.control_dependencies([done]):
        return [
            tf.debugging.check_numerics(
                variable.read_value(),
                nan_errors.MESSAGE.format(name=variable.op.name),
                # Put the variable's name into the op's name, which TensorFlow's error shows.
                name=f"after_loop/{variable.op.name}/is_number",
            )
            for variable in tf.compat.v1.trainable_variables()
            if variable.dtype.is_floating
        ]


def _check_sums_over_replicas(topology: BatchTopology) -> None:
    """Check that the step sums over the replicas, or changes no trainable variable."""
    if topology.replicas == 1 or topology.input_mode == InputPipelineConfig.BROADCAST:
        return
    step_graph = tf.compat.v1.get_default_graph()
    definition = step_graph.as_graph_def()
    bodies = (definition.node, *(function.node_def for function in definition.library.function))
    has_sum = any(op_spec(node.op).is_reduction for body in bodies for node in body)
    if not has_sum and _writes_trainable_variable(step_graph):
        raise InvalidSetting(
            f"model_fn sums nothing over the {topology.replicas} replicas, so each would "
            f"train a model of its own: CrossShardOptimizer must be used for model training "
            f"on TPUs. Wrap the optimizer: trainer.CrossShardOptimizer(optimizer)."
        )


def _writes_trainable_variable(step_graph: Any) -> bool:
    handles = {id(variable.handle) for variable in tf.compat.v1.trainable_variables()}
    captured = {inner.name for outer, inner in step_graph.captures if id(outer) in handles}
    return any(
        operation.inputs[0].name in captured and op_traits.writes_variable(operation.node_def, {})
        for operation in step_graph.get_operations()
        if operation.inputs
    )


def _build_host_spec(spec: Any, loss: Any, train_op: Any) -> EstimatorSpec:
    """Return an EstimatorSpec with model_fn's hooks, and with tensors that a session can fetch."""
    host_parts.rebuild_savers_on_host(spec.training_hooks or ())
    chief_hooks, scaffold = None, None
    if isinstance(spec, TPUEstimatorSpec):
        scaffold = spec.scaffold_fn() if spec.scaffold_fn is not None else None
    else:
        chief_hooks = spec.training_chief_hooks
        if any(part is not None for part in vars(spec.scaffold).values()):
            logger.warning(
                "The scaffold of an EstimatorSpec is ignored on a TPU. Return a "
                "TPUEstimatorSpec with a scaffold_fn."
            )
    return EstimatorSpec(
        ModeKeys.TRAIN,
        loss=loss,
        train_op=train_op,
        scaffold=scaffold,
        training_hooks=spec.training_hooks,
        training_chief_hooks=chief_hooks,
    )
