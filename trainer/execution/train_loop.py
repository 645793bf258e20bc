"""Builds the training loop for CPU and GPU, which makes many steps in one `session.run`.

The ops that model_fn built stay in the graph and make the last step of each loop, so that hooks and
summaries can fetch their tensors.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

import tensorflow as tf

from tpuserve.errors import UncompilableStep
from tpuserve.graph import reachability
from tpuserve.stablehlo.xla_errors import LineOf, unknown_line
from trainer.config.run_config import TPUConfig
from trainer.execution.compiled_step import CompiledStep
from trainer.execution.step_copy import StepCopier
from trainer.tensorflow_internals import control_flow_util, get_private_attribute, while_v2

# Stands for no limit on the number of steps of a `session.run`. The loop in the graph always
# needs a number, and this is the largest int32, the dtype in which the loop counts.
UNBOUNDED = 2**31 - 1
_NUM_TIMED_RUNS = 20


class IterationPlan(Protocol):
    """Decides how many steps the next `session.run` makes, given the duration of earlier runs.

    Attributes:
      max_iterations: the largest number of steps of a `session.run`; `UNBOUNDED` without a limit.
    """

    max_iterations: int

    def next_iterations(self, steps_left: int | None) -> int:
        """Return the number of steps of the next `session.run`.

        Args:
          steps_left: number of steps until the end of training; None if unknown.
        """

    def record(self, iterations: int, seconds: float) -> None:
        """Record the number of steps and the duration in seconds of a `session.run`."""


class FixedIterations:
    """An IterationPlan with the same number of steps in each `session.run`."""

    def __init__(self, iterations: int) -> None:
        self.max_iterations = iterations

    def next_iterations(self, steps_left: int | None) -> int:
        """Return the fixed number, or the number of steps left if that is smaller."""
        return self.max_iterations if steps_left is None else min(self.max_iterations, steps_left)

    def record(self, iterations: int, seconds: float) -> None:
        """Do nothing: the number of steps does not depend on durations."""


class TimedIterations:
    """An IterationPlan in which each `session.run` takes approximately a chosen time.

    The first `session.run` has one step. The durations of the last runs determine the number of
    steps of the next run.
    """

    def __init__(self, seconds: float) -> None:
        self.max_iterations = UNBOUNDED
        self._seconds = seconds
        self._runs: deque[tuple[int, float]] = deque(maxlen=_NUM_TIMED_RUNS)

    def next_iterations(self, steps_left: int | None) -> int:
        """Return how many steps fit into the chosen time, by the mean step time of the last runs.

        The result is at least 1 and at most `steps_left`.
        """
        steps = sum(iterations for iterations, _ in self._runs)
        seconds = sum(seconds for _, seconds in self._runs)
        planned = int(self._seconds * steps / max(seconds, 1e-9)) if steps else 1
        planned = max(1, min(planned, self.max_iterations))
        return planned if steps_left is None else min(planned, steps_left)

    def record(self, iterations: int, seconds: float) -> None:
        """Record the number of steps and the duration of a `session.run`, for `next_iterations`."""
        self._runs.append((iterations, seconds))


def build_iteration_plan(config: TPUConfig) -> IterationPlan:
    """Build the IterationPlan that TPUConfig.iterations_per_loop describes.

    The setting is a number of steps, or the duration of a `session.run`.
    """
    if config.loop_secs is not None:
        return TimedIterations(config.loop_secs)
    return FixedIterations(int(config.iterations_per_loop))


def fixed_iterations(config: TPUConfig) -> int:
    """Return the number of steps of a loop in an evaluation on a TPU.

    The number is TPUConfig.iterations_per_loop, or 1 if iterations_per_loop is a duration.
    """
    return 1 if config.loop_secs is not None else int(config.iterations_per_loop)


logger = logging.getLogger("tensorflow.trainer")


def _ignore(iterations: int) -> None:
    pass


@dataclass(frozen=True)
class TrainLoop:
    """The op that makes several training steps in one `session.run`, with its input and results.

    A run is one `session.run` of the op.

    Attributes:
      iterations: an int32 placeholder [], the number of steps of a run; 1 if it is not fed.
      train_op: the operations that a run executes.
      before_run: a backend's function that prepares a run, for example by passing the number of
        steps to the infeed. A hook calls it before each run, with the number of steps.
      compiled: a copy of the step, in which XLA compiles a part. A run executes the copy for all
        steps but the last, and the original step for the last. None if XLA compiles nothing.
    """

    iterations: Any
    train_op: Any
    loss: Any
    step: Any
    max_iterations: int
    before_run: Callable[[int], None] = _ignore
    compiled: CompiledStep | None = None


def build_train_loop(
    train_op: Any,
    loss: Any,
    global_step: Any,
    iterations_per_loop: int,
    compile_step: bool | str = False,
    line_of: LineOf = unknown_line,
) -> TrainLoop:
    """Build the op that repeats a training step, which is already in the default graph.

    A step that reads a placeholder, or that keeps state outside resource variables, cannot be
    copied.

    Args:
      iterations_per_loop: the largest number of steps of one run.
      compile_step: the value of RunConfig.compile_step. With True, XLA must compile a part of the
        step; with "auto", it may; with False, it does not.
      line_of: takes "node@function", the name of a node and of the function that contains the node;
        returns the line of user code that created the node. For error messages.
    """
    iterations = tf.compat.v1.placeholder_with_default(1, [], name="iterations")
    train_op = getattr(train_op, "op", train_op)
    graph = tf.compat.v1.get_default_graph()
    with tf.control_dependencies([train_op]):
        step_after = tf.identity(global_step, name="global_step_after")
    step = reachability.reachable_ops([train_op, loss.op])
    obstacle = why_not_unrollable(step)
    if obstacle is not None and iterations_per_loop > 1:
        several = "several" if iterations_per_loop == UNBOUNDED else iterations_per_loop
        logger.warning("one step in each session.run, not %s: %s", several, obstacle)
    if obstacle is not None or iterations_per_loop == 1:
        if compile_step is True:
            _refuse(obstacle or "a session.run makes only one step; set iterations_per_loop")
        return TrainLoop(iterations, train_op, loss, step_after, max_iterations=1)
    others = [node for node in graph.get_operations() if node.name not in step]
    compiled = None
    if compile_step:
        compiled = CompiledStep(reachability.reachable_ops([train_op]), line_of)
        if compile_step is True and compiled.obstacle:
            _refuse(compiled.obstacle)
    if compiled is None or compiled.obstacle:
        earlier_steps = run_unrolled(step, train_op, iterations - 1)
    else:
        earlier_steps = _run_compiled(compiled, step, train_op, iterations - 1)
    for operation in (*_roots(step), *_reads(others)):
        get_private_attribute(operation, "_add_control_input")(earlier_steps)
    # Grappler makes a gather of sparse ids a read of the whole variable that does not wait for the
    # earlier steps, unless the session.run executes the gather by name.
    gathers = [
        operation
        for operation in step.values()
        if operation.type == "ResourceGather" and graph.is_fetchable(operation)
    ]
    run = [train_op, *gathers]
    return TrainLoop(iterations, run, loss, step_after, iterations_per_loop, compiled=compiled)


def _refuse(reason: str) -> NoReturn:
    raise UncompilableStep(
        f"RunConfig has compile_step=True, and the training step is not compiled: {reason}. Change "
        f"the step, or leave compile_step out."
    )


def _run_compiled(compiled: CompiledStep, step: dict[str, Any], last: Any, count: Any) -> Any:
    """Build an op that makes `count` steps, in XLA or in TensorFlow's kernels."""
    if compiled.shares_ops:
        return repeat(partial(compiled.build_step, can_choose=True), count, "earlier_steps")
    in_xla = tf.where(compiled.uses_xla, tf.minimum(count, compiled.xla_steps), 0)
    first = repeat(partial(compiled.build_step, can_choose=False), in_xla, "compiled_steps")
    with tf.control_dependencies([first]):
        others = tf.identity(count - in_xla)
    return tf.group(first, run_unrolled(step, last, others))


def why_not_unrollable(step: dict[str, Any]) -> str | None:
    """Return why a `session.run` cannot repeat a step in a loop; None if it can."""
    for operation in step.values():
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor.op.type == "Placeholder":
                return f"placeholder {tensor.op.name!r} is fed by each session.run"
            if get_private_attribute(tensor.dtype, "_is_ref_dtype"):
                return (
                    f"{operation.type} {operation.name!r} works on a reference; use resource "
                    f"variables (use_resource=True)"
                )
    return None


def run_unrolled(step: dict[str, Any], last: Any, count: Any) -> Any:
    """Build an op that makes `count` steps, in a while loop over a copy of a step's operations.

    Args:
      count: the number of steps, int32 [].
    """
    copier = StepCopier()

    def run_step(number: Any) -> Any:
        (copy,) = copier.copy(step, {}, [last.name])
        return copy

    return repeat(run_step, count, "earlier_steps")


def repeat(run_step: Callable[[Any], Any], count: Any, name: str) -> Any:
    """Build an op that makes `count` steps in a while loop.

    Args:
      run_step: takes the number of a step, int32 [], and builds the ops of the step in the default
        graph; returns an operation whose completion ends the step.
      count: the number of steps, int32 [].
    """

    def body(done: Any) -> Any:
        with tf.control_dependencies([run_step(done)]):
            return done + 1

    done = while_v2.while_loop(lambda done: done < count, body, [tf.constant(0)], name=name)
    return tf.group(done)


def _roots(step: dict[str, Any]) -> list[Any]:
    """Return the operations of the last step that must wait for the earlier steps of a loop."""
    return [
        operation
        for operation in step.values()
        if operation.type != "Const"
        and (
            all(
                tensor.op.name not in step or tensor.op.type == "Const"
                for tensor in operation.inputs
            )
            # Include every operation that takes a resource, even if its other inputs already wait
            # for the earlier steps.
            or any(tensor.dtype == tf.resource for tensor in operation.inputs)
        )
        and not _is_inside_while(operation)
    ]


def _reads(operations: Iterable[Any]) -> list[Any]:
    return [
        operation
        for operation in operations
        if operation.outputs
        and any(tensor.dtype == tf.resource for tensor in operation.inputs)
        and not _is_inside_while(operation)
    ]


def _is_inside_while(operation: Any) -> bool:
    # In a TensorFlow 1 while loop, only the Enter operations can have a control input from outside
    # of the loop. The operations of the body wait for the Enter operations.
    own_context = get_private_attribute(operation, "_get_control_flow_context")()
    context = control_flow_util.GetContainingWhileContext(own_context)
    if context is not None and operation.type == "Enter":
        context = control_flow_util.GetContainingWhileContext(context.outer_context)
    return context is not None
