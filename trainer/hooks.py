"""SessionRunHooks of our own; they are called by the loop, and never own it."""

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from trainer.iteration_count import FixedIterations, IterationPlan
from trainer.loop import Loop

logger = logging.getLogger("tensorflow.trainer")


class DatasetInitializerHook(tf.compat.v1.train.SessionRunHook):
    """Starts a Dataset's iterator whenever a session is created."""

    def __init__(self, initializer: Any) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the iterator's initializer."""
        session.run(self._initializer)


class StepLimitHook(tf.compat.v1.train.SessionRunHook):
    """Makes each loop as long as its plan says, and stops after a given global step."""

    def __init__(
        self,
        loop: Loop,
        first_step: int,
        last_step: int | None,
        plan: IterationPlan | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Plans from the step that training starts after.

        Args:
          loop: what makes the steps.
          first_step: the step that training starts after.
          last_step: the step to stop after; None plans no end.
          plan: says how many steps a run makes; None for as many as the loop can.
          clock: gives the time in seconds that runs are measured by.
        """
        self._loop = loop
        self._last_step = last_step
        self._plan = plan or FixedIterations(loop.max_iterations)
        self._clock = clock
        self._started = 0.0
        self._step = first_step
        self._has_warned = False
        self._iterations = self._next_iterations(first_step)

    def before_run(self, run_context: Any) -> Any:
        """Says how many steps to make."""
        self._started = self._clock()
        self._loop.announce(self._iterations)
        return tf.compat.v1.train.SessionRunArgs(
            self._loop.step, feed_dict={self._loop.iterations: self._iterations}
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Plans the next loop, or stops."""
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
        self._iterations = self._next_iterations(step)
        if self._iterations < 1:
            run_context.request_stop()

    def _next_iterations(self, step: int) -> int:
        steps_left = None if self._last_step is None else self._last_step - step
        return min(self._plan.next(steps_left), self._loop.max_iterations)


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


class StopAfterHook(tf.compat.v1.train.SessionRunHook):
    """Stops after a number of runs."""

    def __init__(self, runs: int | None) -> None:
        """A number of None stops with the input."""
        self._runs_left = runs

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts, and stops at the last."""
        if self._runs_left is None:
            return
        self._runs_left -= 1
        if self._runs_left < 1:
            run_context.request_stop()
