"""A program as a graph for the CPU or a GPU: one replica, a model_fn called once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainer import checkpoints, input_pipeline, iteration_count, loop, summaries, warm_start
from trainer.program import Program
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


@dataclass(frozen=True)
class Training:
    """A model in training.

    Attributes:
      loop: makes steps.
      spec: see `Model`.
      hooks: see `Model`.
    """

    loop: loop.Loop
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


def build_training(
    program: Program,
    input_fn: Callable[..., Any],
    global_step: Any,
    checkpoint: str | None,
    plan: iteration_count.IterationPlan,
) -> Training:
    """The model in training: a loop around the step that model_fn has built.

    What a host_call reads waits for the steps of the loop, since it is built before the loop is.

    Args:
      program, input_fn, checkpoint: see `build`.
      global_step: the variable that counts steps.
      plan: says how many steps a run makes.
    """
    model = build(program, input_fn, ModeKeys.TRAIN, checkpoint)
    if checkpoint is None and program.warm_start is not None:
        warm_start.apply(program.warm_start)
    summaries.add_loss(model.spec.loss)
    steps = loop.repeat(model.spec.train_op, model.spec.loss, global_step, plan.most)
    return Training(steps, model.spec, model.hooks)
