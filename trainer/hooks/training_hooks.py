"""SessionRunHooks that control the training loop, the input pipeline and summary writers."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import StepNotCounted
from trainer.execution.train_loop import FixedIterations, IterationPlan, TrainLoop
from trainer.tensorflow_internals import get_stop_step, summary_ops_v2

_ADVICE = (
    "Lower the learning rate, clip the gradients, or look for a log or a division of zero; "
    "training can continue from the last checkpoint."
)


class NanError(tf.compat.v1.train.NanLossDuringTrainingError):
    """The error that ends training because the loss or a variable is NaN or infinite."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self._found = found

    def __str__(self) -> str:
        return f"{self._found}. {_ADVICE}"


class NanLossHook(tf.compat.v1.train.NanTensorHook):
    """Ends training with a NanError if the loss is NaN."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Check the loss of the last step of the `session.run`."""
        try:
            super().after_run(run_context, run_values)
        except tf.compat.v1.train.NanLossDuringTrainingError as error:
            raise NanError("NaN loss during training") from error


class NumberLossSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves checkpoints, but none after a step whose loss is NaN: training goes on from the last.

    The hook is called before those of the user, who find its checkpoints, and a NanLossHook after.
    """

    def __init__(self, loss: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loss = loss

    def before_run(self, run_context: Any) -> Any:
        """Let the next training loop fetch the loss too."""
        step = super().before_run(run_context).fetches
        return tf.compat.v1.train.SessionRunArgs((step, self._loss))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save a checkpoint if it is due and the loss is a number."""
        step, loss = run_values.results
        if loss == loss:
            super().after_run(run_context, run_values._replace(results=step))


logger = logging.getLogger("tensorflow.trainer")

_COUNT_THE_STEP = (
    "Let train_op count it: minimize(loss, global_step=tf.train.get_global_step()), or "
    "apply_gradients with the same argument."
)
# A training that is to stop at a global step fails if the global step has not increased after at
# least _UNMOVED_LOOPS training loops and at least _UNMOVED_STEPS steps.
_UNMOVED_LOOPS = 3
_UNMOVED_STEPS = 10_000


class DatasetInitializerHook(tf.compat.v1.train.SessionRunHook):
    """Initializes a Dataset's iterator whenever a session is created."""

    def __init__(self, initializer: Any) -> None:
        self.initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the iterator's initializer."""
        session.run(self.initializer)


class StepRangeHook(tf.compat.v1.train.SessionRunHook):
    """Records the global step at which a session starts, and the step at which training stops.

    Attributes:
      last_step: the global step at which to stop; None to train until the input ends.

    Args:
      steps: the number of steps to train, counted from the start of the first session; None
        for no such limit.
    """

    def __init__(self, steps: int | None, max_steps: int | None) -> None:
        self._steps = steps
        self._global_step: Any = None
        self.step = 0
        self.last_step = max_steps

    @property
    def is_over(self) -> bool:
        """Whether `step` is at or beyond `last_step`, so that nothing is left to train."""
        return self.last_step is not None and self.step >= self.last_step

    def begin(self) -> None:
        """Find the global step variable of the graph."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Set `step` to the global step of the new session.

        In the first session, also compute `last_step` if the number of steps is set.
        """
        self.step = self.read(session)
        if self.last_step is None and self._steps is not None:
            self.last_step = self.step + self._steps

    def read(self, session: Any) -> int:
        """Return the current global step of a session."""
        return int(session.run(self._global_step))


class StepLimitHook(tf.compat.v1.train.SessionRunHook):
    """Sets the number of steps of each training loop, and stops training at the last step.

    Args:
      plan: determines the number of steps per `session.run`; None for the largest number that
        the loop supports.
      others: the other hooks of the run. If a StopAtStepHook is among them, a training loop
        ends at the last step of that hook, so that the hook stops training in time.
    """

    def __init__(
        self,
        loop: TrainLoop,
        start: StepRangeHook,
        plan: IterationPlan | None = None,
        *,
        others: Sequence[Any] = (),
        workers: int = 1,
    ) -> None:
        self._loop = loop
        self._start = start
        self._plan = plan or FixedIterations(loop.max_iterations)
        self._stop_hooks = [
            hook for hook in others if isinstance(hook, tf.compat.v1.train.StopAtStepHook)
        ]
        self._workers = workers
        self._started = 0.0
        self._step = 0
        self._iterations = 1
        # How many training loops and how many steps have run without a change of the global step;
        # None once the global step has changed.
        self._unmoved: tuple[int, int] | None = (0, 0)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Record the global step of the new session, at which the next training loop starts."""
        self._step = self._start.step

    def before_run(self, run_context: Any) -> Any:
        """Set the number of steps of the next training loop, which also fetches the global step."""
        self._started = time.monotonic()
        if self._workers > 1:
            # Read the step from the session before each run, because other workers increment the
            # step between two runs of this worker.
            self._step = self._start.read(run_context.session)
        self._iterations = self._next_iterations()
        self._loop.before_run(self._iterations)
        return tf.compat.v1.train.SessionRunArgs(
            self._loop.step, feed_dict={self._loop.iterations: self._iterations}
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Record the duration of the training loop that ran, and stop training at the last step.

        Raises:
          StepNotCounted: the global step has never increased, so training would not end.
        """
        self._plan.record(self._iterations, time.monotonic() - self._started)
        step = int(run_values.results)
        last_step = self._last_step()
        self._check_step_moves(step, last_step)
        self._step = step
        if last_step is not None and step >= last_step:
            run_context.request_stop()

    def _check_step_moves(self, step: int, last_step: int | None) -> None:
        """Check that the training loops increase the global step."""
        if step != self._step:
            self._unmoved = None
        if self._unmoved is None:
            return
        loops, steps = self._unmoved
        self._unmoved = loops + 1, steps + self._iterations
        if loops == 0:
            logger.warning(
                "global step %d has not moved in a training loop. %s", step, _COUNT_THE_STEP
            )
        loops, steps = self._unmoved
        if last_step is not None and loops >= _UNMOVED_LOOPS and steps >= _UNMOVED_STEPS:
            raise StepNotCounted(
                f"training is to stop at global step {last_step}, and the global step is still "
                f"{step} after {steps} steps in {loops} training loops. {_COUNT_THE_STEP}"
            )

    def _next_iterations(self) -> int:
        """Return the number of steps of the next training loop, at least 1."""
        last_step = self._last_step()
        # All workers increment the same global step, so this worker runs only its share of the
        # remaining steps: the remaining steps divided by the number of workers, rounded up.
        remaining = None if last_step is None else -(-(last_step - self._step) // self._workers)
        return max(min(self._plan.next_iterations(remaining), self._loop.max_iterations), 1)

    def _last_step(self) -> int | None:
        """Return the first global step at which a hook stops training; None for no limit."""
        # Read the last step of a StopAtStepHook here, and not when this hook is created: the
        # StopAtStepHook computes it only when the session is created.
        steps = [self._start.last_step, *map(get_stop_step, self._stop_hooks)]
        return min((step for step in steps if step is not None), default=None)


class SummaryWritersHook(tf.compat.v1.train.SessionRunHook):
    """Initializes the tf.summary writers of the graph, and flushes them at the end."""

    def __init__(self) -> None:
        initializers = summary_ops_v2.summary_writer_initializer_op()
        self._initialize = tf.group(*initializers)
        # Build an op that flushes each writer. The writer is the first input of its initializer op.
        self._flush = tf.group(
            *(tf.raw_ops.FlushSummaryWriter(writer=op.inputs[0]) for op in initializers)
        )

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Initialize the writers."""
        session.run(self._initialize)

    def end(self, session: Any) -> None:
        """Flush the writers."""
        session.run(self._flush)


class HostCallHook(SummaryWritersHook):
    """Fetches the results of a host_call's function in each `session.run`.

    Args:
      fetches: the return value of the host_call's function: a nested structure of tensors and
        ops.
    """

    def __init__(self, fetches: Any) -> None:
        super().__init__()
        self._fetches = fetches

    def before_run(self, run_context: Any) -> Any:
        """Let the next training loop fetch the results of the host_call's function."""
        return tf.compat.v1.train.SessionRunArgs(self._fetches)


class StopForEvaluationHook(tf.compat.v1.train.SessionRunHook):
    """Stops training when an evaluation is due; training resumes after the evaluation.

    Training calls this hook after all hooks of the user and of model_fn, so that the hook can
    detect whether one of them ends training.

    Attributes:
      was_stop_requested: whether another hook has requested to end training, so that training must
        not resume.
    """

    def __init__(self, is_evaluation_due: Callable[[], bool]) -> None:
        self.has_stopped = False
        self.was_stop_requested = False
        self._is_evaluation_due = is_evaluation_due

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Record whether another hook ends training, and stop if an evaluation is due."""
        self.was_stop_requested = self.was_stop_requested or run_context.stop_requested
        if self._is_evaluation_due():
            self.has_stopped = True
            run_context.request_stop()


class StopAfterRunsHook(tf.compat.v1.train.SessionRunHook):
    """Stops an evaluation after a number of `session.run` calls.

    Args:
      runs: the number of calls; None to stop only at the end of the input.
    """

    def __init__(self, runs: int | None) -> None:
        self._runs = runs
        self.done = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count the `session.run`, and stop after the last one."""
        self.done += 1
        if self._runs is not None and self.done >= self._runs:
            run_context.request_stop()
