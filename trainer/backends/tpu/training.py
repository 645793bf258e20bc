"""Training on a TPU: the graph of the loop, and what drives its infeed and outfeed."""

import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from tpuserve.lowering.rules import op_traits
from trainer import infeed
from trainer.backends.base import TrainGraph
from trainer.backends.tpu import lowered_targets
from trainer.backends.tpu.diagnostics import nan_errors
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.step import host_savers, step_outputs, tpu_loop
from trainer.backends.tpu.step.captured_tensors import TensorCapture
from trainer.backends.tpu.step.step_outputs import StepOutputVariables
from trainer.backends.tpu.transfer.infeed_outfeed_hook import InfeedOutfeedHook
from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.checkpoints import warm_start
from trainer.config.run_config import InputPipelineConfig
from trainer.execution import iterations_per_loop
from trainer.execution.train_loop import TrainLoop
from trainer.hooks import summaries
from trainer.hooks.training_hooks import SummaryWritersHook
from trainer.model.host_call import call_on_host
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")


def build(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    global_step: Any,
    checkpoint: str | None,
    plan: iterations_per_loop.IterationPlan,
    setting: TpuModeContext,
) -> TrainGraph:
    """The model in training on all replicas.

    Args:
      program, input_fn, global_step, checkpoint, plan: see `trainer.backends.local.build_training`.
      setting: where it runs.
    """
    config, topology = program.config.tpu_config, setting.topology
    replica, fed = setting.fed(program, input_fn)
    values, sent = StepOutputVariables(topology.replicas), Outfeed(topology)
    observed = TensorCapture(values)
    step = _Step(replica, fed, values, sent, observed, config.experimental_host_call_every_n_steps)
    iterations = tf.compat.v1.placeholder_with_default(1, [], name="iterations")
    _, done = tpu_loop.build_tpu_loop(step.build, iterations, topology, replica.device_assignment)
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    received = tf.nest.flatten(sent.concatenated()) if sent.is_used else []
    ready = lowered_targets.ready([done, fed.enqueue, *received], setting.device)
    done, enqueue, *received = ready.targets
    host_call = step.host_call(received)
    make_feeding = config.experimental_feed_hook or InfeedOutfeedHook
    feeding = make_feeding(
        fed,
        enqueue,
        setting.rendezvous,
        results=host_call,
        results_per_loop=lambda steps: -(-steps // step.steps_per_host_call),
        end_infeed=ready.end_infeeds,
        end_outfeed=ready.end_outfeeds,
        sleep_secs=config.initial_infeed_sleep_secs or 0,
    )
    loss = step_outputs.read_after(step.loss, done, step.loss_name)
    with tf.control_dependencies([done]):
        step_after = tf.identity(global_step.read_value(), name="global_step_after")
    observed.restore_for_hooks(done)
    summaries.add_loss_summary(loss)
    train_op = tf.group(*_checks(done))
    return TrainGraph(
        TrainLoop(
            iterations, train_op, loss, step_after, plan.most, feeding.send_next_batch_signal
        ),
        step.spec_outside(loss, train_op),
        (*fed.hooks, feeding, *([SummaryWritersHook()] if received else [])),
    )


def _checks(done: Any) -> list[Any]:
    """Ops that run the loop and refuse variables that are no numbers any more."""
    with tf.control_dependencies([done]):
        return [
            done.op,
            *(
                tf.debugging.check_numerics(
                    each.read_value(),
                    nan_errors.MESSAGE.format(name=each.op.name),
                    # The runtime looks for an op that fails by its name alone.
                    name=f"after_loop/{each.op.name}/is_number",
                )
                for each in tf.compat.v1.trainable_variables()
                if each.dtype.is_floating
            ),
        ]


class _Step:
    """One step of one replica, and what model_fn has said about it."""

    def __init__(
        self,
        program: Any,
        fed: infeed.Infeed,
        values: StepOutputVariables,
        sent: Outfeed,
        observed: TensorCapture,
        host_call_every_n_steps: int,
    ) -> None:
        self._program, self._fed, self._values = program, fed, values
        self._sent, self._observed = sent, observed
        self._every_n_steps = host_call_every_n_steps
        self._spec: Any = None
        self.loss: Any = None
        self.loss_name = "loss"

    def build(self, done: Any) -> Any:
        """The op that makes a step; called inside of the computation."""
        before = len(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES))
        batch = self._fed.dequeue()
        spec = self._program.call_model_fn(batch.features, batch.labels, ModeKeys.TRAIN)
        self._spec = spec
        self._check_is_summed()
        self.loss_name = spec.loss.op.name
        with tf.control_dependencies([spec.train_op]):
            loss = tf.identity(tf.cast(tf.reshape(spec.loss, []), tf.float32))
        self.loss = self._values.keep(loss, "loss")
        self._observed.capture_summaries_since(before)
        self._observed.capture_hook_tensors(spec.training_hooks or (), {id(spec.loss): self.loss})
        operations = [spec.train_op, *self._values.writes]
        host_call = getattr(spec, "host_call", None)
        if host_call is not None and tf.nest.flatten(host_call[1]):
            operations.append(self._send(host_call[1], done))
        return tf.group(*operations)

    def _check_is_summed(self) -> None:
        """Refuses replicas that would each train a model of their own."""
        topology = self._program.topology
        if topology.replicas == 1 or topology.input_mode == InputPipelineConfig.BROADCAST:
            return
        step = tf.compat.v1.get_default_graph()
        definition = step.as_graph_def()
        bodies = (definition.node, *(each.node_def for each in definition.library.function))
        is_summed = any(node.op == "CrossReplicaSum" for body in bodies for node in body)
        if not is_summed and _trains(step):
            raise InvalidSetting(
                f"model_fn sums nothing over the {topology.replicas} replicas, so each would "
                f"train a model of its own: CrossShardOptimizer must be used for model training "
                f"on TPUs. Wrap the optimizer: trainer.CrossShardOptimizer(optimizer)."
            )

    def _send(self, tensors: Any, done: Any) -> Any:
        if self._every_n_steps <= 1:
            return self._sent.enqueue(tensors, "host_call tensor ")

        def enqueue() -> Any:
            with tf.control_dependencies([self._sent.enqueue(tensors, "host_call tensor ")]):
                return tf.constant(True)

        return tf.cond(tf.equal(done % self._every_n_steps, 0), enqueue, lambda: tf.constant(False))

    @property
    def steps_per_host_call(self) -> int:
        """Steps of a loop that one host call stands for."""
        return max(self._every_n_steps, 1)

    def host_call(self, received: list[Any]) -> Any:
        """What host_call returns for what the cores sent; None where there is none."""
        if not received:
            return None
        return call_on_host((self._spec.host_call[0], self._sent.pack(received)))

    def spec_outside(self, loss: Any, train_op: Any) -> EstimatorSpec:
        """The spec as the main graph sees it, once the step is in the loop."""
        spec = self._spec
        host_savers.rebuild_savers_on_host(spec.training_hooks or ())
        chief_hooks, scaffold = None, None
        if isinstance(spec, TPUEstimatorSpec):
            scaffold = spec.scaffold_fn() if spec.scaffold_fn is not None else None
        else:
            chief_hooks = spec.training_chief_hooks
            if spec.scaffold is not None:
                logger.warning(
                    "the scaffold of an EstimatorSpec is left alone on a TPU. Return a "
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


def _trains(step: Any) -> bool:
    """Whether a trainable variable is changed in the graph of a step."""
    handles = {id(each.handle) for each in tf.compat.v1.trainable_variables()}
    inside = {inner.name for outer, inner in step.captures if id(outer) in handles}
    return any(
        operation.inputs[0].name in inside and op_traits.writes_variable(operation.node_def, {})
        for operation in step.get_operations()
        if operation.inputs
    )
