"""What a mode runs, and the places that make it:
`trainer.backends.local` and `trainer.backends.tpu`.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from trainer.config.run_config import RunConfig
from trainer.execution.iterations_per_loop import IterationPlan
from trainer.execution.train_loop import TrainLoop
from trainer.model.eval_metrics import EvalMetrics
from trainer.model.spec import EstimatorSpec


@dataclass(frozen=True)
class TrainGraph:
    """A model in training.

    Attributes:
      loop: makes steps.
      spec: what the main graph knows of what model_fn returned.
      hooks: what must run so that the input flows.
    """

    loop: TrainLoop
    spec: EstimatorSpec
    hooks: tuple[Any, ...]


@dataclass(frozen=True)
class EvalGraph:
    """A model in evaluation.

    Attributes:
      metrics: their update is to be run until a hook, or the end of the input, stops it.
      spec, hooks: see `TrainGraph`.
      batches_done: says how many batches have been taken; None where nothing tells.
    """

    metrics: EvalMetrics
    spec: EstimatorSpec
    hooks: tuple[Any, ...]
    batches_done: Callable[[], int] | None = None


@dataclass(frozen=True)
class PredictGraph:
    """A model in prediction.

    Attributes:
      batches: takes a session; gives, until the input ends, each batch of predictions.
      spec, hooks: see `TrainGraph`.
    """

    batches: Callable[[Any], Iterator[Any]]
    spec: EstimatorSpec
    hooks: tuple[Any, ...]


class ExecutionBackend(Protocol):
    """Where a program runs.

    Each method but the last is called once, within the graph of `graph`.
    """

    master: str

    def graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """A new default graph to build in; gives its global step."""

    def training(
        self,
        program: Any,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: IterationPlan,
    ) -> TrainGraph:
        """The model in training.

        Args:
          program: what to build.
          input_fn: gives the input.
          global_step: the variable that counts steps.
          checkpoint: what the variables will be restored from; None for initial values.
          plan: says how many steps a run makes.
        """

    def evaluation(
        self,
        program: Any,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> EvalGraph:
        """The model in evaluation, of so many batches, or of all where steps is None."""

    def prediction(
        self,
        program: Any,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        select: Callable[[Any], Any],
    ) -> PredictGraph:
        """The model in prediction; `select` picks what is wanted of its predictions."""

    def session_config(self, proto: Any) -> Any:
        """The ConfigProto that its sessions need."""

    def running(self) -> AbstractContextManager[Any]:
        """To be around the session: raises the first cause of what failed in it."""
