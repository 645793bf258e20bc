"""The interface of an execution backend, and the graphs that a backend builds.

A backend builds one graph for each mode: to train, to evaluate or to predict. The backends are
`trainer.backends.local` and `trainer.backends.tpu`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from trainer.config.run_config import RunConfig
from trainer.execution.train_loop import IterationPlan, TrainLoop
from trainer.model.eval_metrics import EvalMetrics
from trainer.model.spec import EstimatorSpec


def _ignore(steps: int) -> None:
    pass


@dataclass(frozen=True)
class TrainGraph:
    """The graph of a training run.

    Attributes:
      spec: model_fn's EstimatorSpec. On a TPU, a replacement with the same hooks, and with the
        scaffold of scaffold_fn.
    """

    loop: TrainLoop
    spec: EstimatorSpec
    hooks: tuple[Any, ...]


@dataclass(frozen=True)
class EvalGraph:
    """The graph of an evaluation run.

    Attributes:
      metrics: the ops of the metrics. The evaluation runs the op `metrics.update` until a hook or
        the end of the input stops the session.
      spec: model_fn's EstimatorSpec. On a TPU, a replacement with the same hooks, and with the
        scaffold of scaffold_fn.
      input_hooks: SessionRunHooks that initialize the input. They must be called before the user's
        hooks, which may read a batch when the session is created.
      batches_done: function that returns the number of batches evaluated so far; on a TPU, a
        smaller final batch is not counted. None if the backend does not count batches.
      steps_per_run: the number of steps that one `session.run` makes: an int, or an int32 tensor of
        shape [].
      limit_steps_per_run: function that sets the largest number of steps that one `session.run`
        makes; its argument is this number.
    """

    metrics: EvalMetrics
    spec: EstimatorSpec
    hooks: tuple[Any, ...]
    input_hooks: tuple[Any, ...] = ()
    batches_done: Callable[[], int] | None = None
    steps_per_run: Any = 1
    limit_steps_per_run: Callable[[int], None] = _ignore


@dataclass(frozen=True)
class PredictGraph:
    """The graph of a prediction run.

    Attributes:
      read_batches: function that takes a session and yields each batch of predictions until the
        input ends.
      spec: model_fn's EstimatorSpec. On a TPU, a replacement with the same hooks, and with the
        scaffold of scaffold_fn.
      input_hooks: SessionRunHooks that initialize the input. They must be called before the user's
        hooks, which may read a batch when the session is created.
    """

    read_batches: Callable[[Any], Iterator[Any]]
    spec: EstimatorSpec
    hooks: tuple[Any, ...] = ()
    input_hooks: tuple[Any, ...] = ()


class ExecutionBackend(Protocol):
    """Builds the graph of one mode, such as training, and runs it on a kind of device.

    Package `trainer.modes` uses a backend in this order: it enters the context `new_graph`, calls
    one build method, such as `build_train_graph`, and then runs a session from `create_session`
    inside the context `run_scope`.
    """

    def new_graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """Return a context that creates a default graph, and yields its global step variable."""

    def build_train_graph(
        self,
        program: Any,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: IterationPlan,
        compile_step: bool | str = False,
        hooks: Sequence[Any] = (),
    ) -> TrainGraph:
        """Build the graph that trains a model, in the default graph.

        Args:
          checkpoint: the checkpoint that the variables will be restored from; None for initial
            values.
          compile_step: whether XLA compiles the step on the CPU; ignored on a TPU. See
            `RunConfig.compile_step`.
          hooks: the user's hooks; on a TPU, each step copies the tensors of the
            LoggingTensorHooks among them for the host. Ignored on the CPU.
        """

    def build_eval_graph(
        self,
        program: Any,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> EvalGraph:
        """Build the graph that evaluates a model, in the default graph.

        Args:
          checkpoint: the checkpoint that the variables will be restored from; None for initial
            values.
          steps: number of batches to evaluate; None for all batches of the input.
        """

    def build_predict_graph(
        self,
        program: Any,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> PredictGraph:
        """Build the graph that predicts with a model, in the default graph.

        Args:
          checkpoint: the checkpoint that the variables will be restored from; None for initial
            values.
        """

    def create_session(
        self, config: RunConfig, scaffold: Any, hooks: Sequence[Any], **options: Any
    ) -> Any:
        """Create the session that runs the graph.

        Args:
          scaffold: a tf.compat.v1.train.Scaffold with the saver and the initialisation ops.

        Returns:
          A tf.compat.v1.train.MonitoredSession, or an object with the same methods.
        """

    def run_scope(self) -> AbstractContextManager[Any]:
        """Return the context in which the session runs.

        The devices are ready inside the context and shut down after it.
        """
