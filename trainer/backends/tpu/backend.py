"""The TPU backend: runs the modes of an estimator on a TPU system, real or emulated."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends import monitored_session
from trainer.backends.base import EvalGraph, PredictGraph, TrainGraph
from trainer.backends.tpu import evaluation, nan_errors, training, xla_error_locations
from trainer.backends.tpu.host_parts import HostCallPart, PredictionsPart
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.replicated_step import ReplicatedStep
from trainer.backends.tpu.runtime_resolution import resolve_runtime
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.backends.tpu.transfer.outfeed import Outfeed
from trainer.backends.tpu.transfer.outfeed_results import PaddedOutfeedReceiver
from trainer.checkpoints import warm_start
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import BatchTopology
from trainer.execution import run_graph
from trainer.execution.graceful_shutdown import KeyboardInterruptHook
from trainer.execution.source_locations import SourceLocations
from trainer.execution.train_loop import IterationPlan
from trainer.infeed.final_batch_padding import PadFinalBatch
from trainer.model.model_program import TPUModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

# The predictions of all replicas for one batch must have fewer bytes than this limit, because the
# TPU runtime cannot transfer larger messages to the host.
_MAX_TRANSFER_BYTES = 2**30


def build_predict_graph(
    program: TPUModelProgram,
    input_fn: Callable[..., Any],
    checkpoint: str | None,
    select: Callable[[Any], Any],
    context: TpuModeContext,
) -> PredictGraph:
    """Build the graph that predicts with a model on all replicas, in the default graph.

    Args:
      checkpoint: the checkpoint that the variables will be restored from; None for initial values.

    Raises:
      InvalidSetting: batch_axis is set, or the predictions are not a dict, have no static shape,
        or are too large.
    """
    if context.batch_axis is not None:
        raise InvalidSetting(
            f"batch_axis is {context.batch_axis}, and predictions come row by row: predict() on a "
            f"TPU splits the first axis. Use another estimator, without batch_axis."
        )
    predictions = PredictionsPart(select)
    step = ReplicatedStep(
        program, input_fn, context, [predictions, HostCallPart()], padding=PadFinalBatch()
    )
    done = step.build_loop()
    _check_transfer_size(step.outfeed, context.topology)
    warm_start.check_checkpoint_or_warm_start(checkpoint, program.warm_start)
    connected = step.connect(done, waits_for_results=True)
    receiver = connected.receiver
    assert isinstance(receiver, PaddedOutfeedReceiver)

    def read_batches(session: Any) -> Iterator[Any]:
        while not session.should_stop():
            predictions.batches.clear()
            # Make one step per session.run, whatever iterations_per_loop is.
            connected.infeed_outfeed_hook.send_next_batch_signal(1)
            session.run(connected.done.op, {step.iterations: 1})
            yield from list(predictions.batches)
            if receiver.is_at_end:
                return

    scaffold = None
    if isinstance(step.spec, TPUEstimatorSpec) and step.spec.scaffold_fn is not None:
        scaffold = step.spec.scaffold_fn()
    host_spec = EstimatorSpec(
        ModeKeys.PREDICT,
        predictions=tf.constant(0.0),
        scaffold=scaffold,
        prediction_hooks=step.spec.prediction_hooks,
    )
    return PredictGraph(read_batches, host_spec, connected.hooks)


def _check_transfer_size(outfeed: Outfeed, topology: BatchTopology) -> None:
    num_bytes = topology.replicas * sum(
        spec.shape.num_elements() * spec.dtype.size for spec in outfeed.specs
    )
    if num_bytes >= _MAX_TRANSFER_BYTES:
        raise InvalidSetting(
            f"The predictions of one batch are {num_bytes:,} bytes, and the transfer size is "
            f"larger than the protobuf limit of {_MAX_TRANSFER_BYTES:,}. Use a smaller "
            f"predict_batch_size, or predict less per row."
        )


_Graph = TypeVar("_Graph", TrainGraph, EvalGraph, PredictGraph)


class TpuBackend:
    """Runs one mode on a TPU system; see `trainer.backends.base.ExecutionBackend`.

    Args:
      context: the TPU system, and the distribution of the mode's batches over its cores.
      source_locations: records the line of model_fn that creates an op, for error messages.
    """

    def __init__(
        self,
        config: RunConfig,
        context: TpuModeContext,
        source_locations: SourceLocations,
    ) -> None:
        self._config, self._context = config, context
        self._interrupt_hook = KeyboardInterruptHook()
        self._source_locations = source_locations

    def new_graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """Return a context with a new default graph, for several replicas.

        CrossReplicaSum ops that model_fn builds in this graph stay. The local backend, which has
        one replica, replaces them by identities.
        """
        return run_graph.new_run_graph(config)

    def build_train_graph(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: IterationPlan,
        compile_step: bool | str = False,
        hooks: Sequence[Any] = (),
    ) -> TrainGraph:
        """Build the graph that trains a model on all replicas.

        The arguments are those of `ExecutionBackend.build_train_graph`.
        """
        return self._with_system_hooks(
            training.build_train_graph(
                self._with_source_lines(program),
                input_fn,
                global_step,
                checkpoint,
                plan,
                self._context,
                hooks,
            )
        )

    def build_eval_graph(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> EvalGraph:
        """Build the graph that evaluates a model on all replicas.

        The arguments are those of `ExecutionBackend.build_eval_graph`.
        """
        return self._with_system_hooks(
            evaluation.build_eval_graph(
                self._with_source_lines(program), input_fn, checkpoint, steps, self._context
            )
        )

    def build_predict_graph(
        self,
        program: TPUModelProgram,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> PredictGraph:
        """Build the graph that predicts with a model on all replicas.

        The arguments are those of `ExecutionBackend.build_predict_graph`.
        """
        return self._with_system_hooks(
            build_predict_graph(
                self._with_source_lines(program), input_fn, checkpoint, select, self._context
            )
        )

    def create_session(
        self, config: RunConfig, scaffold: Any, hooks: Sequence[Any], **options: Any
    ) -> Any:
        """Create a MonitoredSession at the session target (master) of the TPU system.

        The arguments are those of `ExecutionBackend.create_session`.
        """
        runtime = self._context.runtime
        proto = runtime.session_config(monitored_session.config_proto(config))
        return monitored_session.create_monitored_session(
            config,
            runtime.master,
            proto,
            scaffold,
            hooks,
            wrap_session=runtime.wrap_session,
            **options,
        )

    @contextmanager
    def run_scope(self) -> Iterator[None]:
        """Return a context in which the TPU system is initialised; shut the system down after it.

        If several threads of the run fail, the end of the context raises the error that caused the
        others.

        Raises:
          UnsupportedOnTpu: the computation of a core has an op that XLA cannot compile.
          NanError: a variable became NaN or infinite.
        """
        context = self._context
        try:
            with (
                self._interrupt_hook,
                context.runtime.initialized_system(context.topology, self._config),
                context.rendezvous,
            ):
                yield
        except Exception as error:
            explained = xla_error_locations.explain_xla_error(
                error, self._source_locations
            ) or nan_errors.explain_nan_error(error)
            if explained is None:
                raise
            # Hide TensorFlow's error and its tracebacks: the new error names the line of model_fn.
            raise explained from None

    def _with_source_lines(self, program: TPUModelProgram) -> TPUModelProgram:
        """Return a copy of the program whose model_fn records which source line creates each op."""
        model_fn = self._source_locations.recording(program.model_fn)
        return dataclasses.replace(program, model_fn=model_fn)

    def _with_system_hooks(self, graph: _Graph) -> _Graph:
        hooks: tuple[Any, ...] = self._context.runtime.preemption_hooks(self._config)
        return dataclasses.replace(graph, hooks=(*hooks, self._interrupt_hook, *graph.hooks))


def create_tpu_backend(
    program: TPUModelProgram, mode: str, *, batch_axis: Any = None
) -> TpuBackend:
    """Create the backend for one mode of a program on a TPU, and log the TPU system."""
    source_locations = SourceLocations()
    runtime = resolve_runtime(program.config, mode, source_locations.line_of)
    topology = BatchTopology(
        runtime.system, program.config.tpu_config, mode, program.batch_sizes.get(mode)
    )
    topology.check()
    runtime.log_system(topology)
    context = TpuModeContext(topology, runtime, ErrorRendezvous(), batch_axis)
    return TpuBackend(program.config, context, source_locations)
