"""SessionRunHooks of our own; they are called by the loop, and never own it."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from trainer.execution.iterations_per_loop import FixedIterations, IterationPlan
from trainer.execution.train_loop import TrainLoop

logger = logging.getLogger("tensorflow.trainer")


class DatasetInitializerHook(tf.compat.v1.train.SessionRunHook):
    """Starts a Dataset's iterator whenever a session is created.

    Attributes:
      initializer: the op that starts it.
    """

    def __init__(self, initializer: Any) -> None:
        self.initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the iterator's initializer."""
        session.run(self.initializer)


class StepRangeHook(tf.compat.v1.train.SessionRunHook):
    """Finds the step that a session starts after, and with it the one that training stops at.

    A checkpoint does not always tell: a warm start may set the step, another process of the
    cluster may have counted on, and a session that is created anew may start from an older one.

    Attributes:
      step: the global step when the session was created.
      last_step: the step to stop at; None for no end.
    """

    def __init__(self, steps: int | None, max_steps: int | None) -> None:
        """Stops after so many steps from the first session's start on, or at max_steps."""
        self._steps = steps
        self._global_step: Any = None
        self.step = 0
        self.last_step = max_steps

    @property
    def is_over(self) -> bool:
        """Whether there is no step left to make."""
        return self.last_step is not None and self.step >= self.last_step

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads it."""
        self.step = self.read(session)
        if self.last_step is None and self._steps is not None:
            self.last_step = self.step + self._steps

    def read(self, session: Any) -> int:
        """The global step as it is now."""
        return int(session.run(self._global_step))


class StepLimitHook(tf.compat.v1.train.SessionRunHook):
    """Makes each loop as long as its plan says, and stops after a given global step."""

    def __init__(
        self,
        loop: TrainLoop,
        start: StepRangeHook,
        plan: IterationPlan | None = None,
        *,
        others: Sequence[Any] = (),
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Plans from the step that training starts after.

        Args:
          loop: what makes the steps.
          start: knows where training starts and stops.
          plan: says how many steps a run makes; None for as many as the loop can.
          others: hooks of the same run: no loop goes beyond the step that one of them stops at.
          workers: how many processes count the same global step.
          clock: gives the time in seconds that runs are measured by.
        """
        self._loop = loop
        self._start = start
        self._plan = plan or FixedIterations(loop.max_iterations)
        self._others = [
            each for each in others if isinstance(each, tf.compat.v1.train.StopAtStepHook)
        ]
        self._workers = workers
        self._clock = clock
        self._started = 0.0
        self._step = 0
        self._has_warned = False
        self._iterations = 1

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Plans from the session's step on."""
        self._step = self._start.step

    def before_run(self, run_context: Any) -> Any:
        """Says how many steps to make."""
        self._started = self._clock()
        if self._workers > 1:
            # While this one was saving a checkpoint, say, the others have counted on.
            self._step = self._start.read(run_context.session)
        self._iterations = self._next_iterations()
        self._loop.before_run(self._iterations)
        return tf.compat.v1.train.SessionRunArgs(
            self._loop.step, feed_dict={self._loop.iterations: self._iterations}
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops at the last step."""
        self._plan.record(self._iterations, self._clock() - self._started)
        step = int(run_values.results)
        if step == self._step and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "global step %d has not moved in a training loop. Does train_op count it, as "
                "minimize(loss, global_step=tf.train.get_global_step()) does?",
                step,
            )
        self._step = step
        last_step = self._last_step()
        if last_step is not None and step >= last_step:
            run_context.request_stop()

    def _next_iterations(self) -> int:
        last_step = self._last_step()
        # What is left is shared with the other workers, who make their loops meanwhile.
        left = None if last_step is None else -(-(last_step - self._step) // self._workers)
        return max(min(self._plan.next(left), self._loop.max_iterations), 1)

    def _last_step(self) -> int | None:
        # Asked for in each run: the hooks know theirs only when a session is there. They would
        # stop a loop too late by themselves, since they take it for one step.
        lasts = [self._start.last_step, *(each._last_step for each in self._others)]
        return min((each for each in lasts if each is not None), default=None)


class SummaryWritersHook(tf.compat.v1.train.SessionRunHook):
    """Starts the tf.summary writers that the graph has, and flushes them at the end."""

    def __init__(self) -> None:
        initializers = summary_ops_v2.summary_writer_initializer_op()
        self._initialize = tf.group(*initializers)
        # The first input of each is the writer itself.
        self._flush = tf.group(
            *(tf.raw_ops.FlushSummaryWriter(writer=each.inputs[0]) for each in initializers)
        )

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the writers."""
        session.run(self._initialize)

    def end(self, session: Any) -> None:
        """Writes out what the writers hold."""
        session.run(self._flush)


class HostCallHook(SummaryWritersHook):
    """Runs what a host_call returned along with each training loop."""

    def __init__(self, fetches: Any) -> None:
        """Also looks after the writers that the call has made."""
        super().__init__()
        self._fetches = fetches

    def before_run(self, run_context: Any) -> Any:
        """Adds the host call to the run."""
        return tf.compat.v1.train.SessionRunArgs(self._fetches)


class StopAfterRunsHook(tf.compat.v1.train.SessionRunHook):
    """Stops after a number of runs.

    Attributes:
      done: how many there have been.
    """

    def __init__(self, runs: int | None) -> None:
        """A number of None stops with the input."""
        self._runs = runs
        self.done = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts, and stops at the last."""
        self.done += 1
        if self._runs is not None and self.done >= self._runs:
            run_context.request_stop()
