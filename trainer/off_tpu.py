"""A program as a graph for the CPU or a GPU: one replica, a model_fn called once."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer import (
    checkpoints,
    eval_metrics,
    graph,
    input_pipeline,
    iteration_count,
    loop,
    summaries,
    warm_start,
)
from trainer.config import RunConfig
from trainer.hooks import StopAfterHook
from trainer.program import Program
from trainer.runs import Evaluation, Prediction, Training
from trainer.spec import EstimatorSpec, ModeKeys


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
    program: Program, input_fn: Callable[..., Any], mode: str, checkpoint: str | None
) -> Model:
    """The model of one mode, with its input.

    Args:
      program: what to build.
      input_fn: gives the input.
      mode: one of `ModeKeys`.
      checkpoint: what the variables will be restored from; None for initial values.

    Raises:
      CheckpointMismatch: the checkpoint holds a variable in another shape.
    """
    inputs = input_pipeline.build(program.call_input_fn(input_fn, mode))
    spec = program.call_model_fn(inputs.features, inputs.labels, mode).as_estimator_spec()
    if checkpoint is not None:
        checkpoints.check_shapes(checkpoint)
    return Model(inputs.features, spec, inputs.hooks)


class OffTpu:
    """The CPU or a GPU of this machine."""

    master = ""

    def graph(self, config: RunConfig) -> AbstractContextManager[Any]:
        """A graph with one replica."""
        return graph.fresh(config, has_one_replica=True)

    def training(
        self,
        program: Program,
        input_fn: Callable[..., Any],
        global_step: Any,
        checkpoint: str | None,
        plan: iteration_count.IterationPlan,
    ) -> Training:
        """A loop around the step that model_fn has built.

        What a host_call reads waits for the steps of the loop, since it is built before.
        """
        model = build(program, input_fn, ModeKeys.TRAIN, checkpoint)
        if checkpoint is None and program.warm_start is not None:
            warm_start.apply(program.warm_start)
        summaries.add_loss(model.spec.loss)
        steps = loop.repeat(model.spec.train_op, model.spec.loss, global_step, plan.most)
        return Training(steps, model.spec, model.hooks)

    def evaluation(
        self,
        program: Program,
        input_fn: Callable[..., Any],
        checkpoint: str | None,
        steps: int | None,
    ) -> Evaluation:
        """One batch of any size in each `session.run`."""
        model = build(program, input_fn, ModeKeys.EVAL, checkpoint)
        metrics = eval_metrics.of_spec(model.spec, model.features)
        return Evaluation(metrics, model.spec, (*model.hooks, StopAfterHook(steps)))

    def prediction(
        self,
        program: Program,
        input_fn: Callable[..., Any],
        checkpoint: str,
        select: Callable[[Any], Any],
    ) -> Prediction:
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

        return Prediction(batches, model.spec, model.hooks)

    def session_config(self, proto: Any) -> Any:
        """It needs nothing."""
        return proto

    def running(self) -> AbstractContextManager[Any]:
        """Errors are raised where they happen."""
        return contextlib.nullcontext()
