"""SessionRunHooks of our own; they are called by the loop, and never own it."""

import logging
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import summary_ops_v2

from trainer.loop import Loop
from trainer.spec import TPUEstimatorSpec, call_on_host

logger = logging.getLogger("tensorflow.trainer")


class DatasetInitializerHook(tf.compat.v1.train.SessionRunHook):
    """Starts a Dataset's iterator whenever a session is created."""

    def __init__(self, initializer: Any) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the iterator's initializer."""
        session.run(self._initializer)


class StepLimitHook(tf.compat.v1.train.SessionRunHook):
    """Makes each loop as long as it may be, and stops after a given global step."""

    def __init__(self, loop: Loop, first_step: int, last_step: int | None) -> None:
        """Plans from the step that training starts after; a last_step of None plans no end."""
        self._loop = loop
        self._last_step = last_step
        self._step = first_step
        self._has_warned = False
        self._iterations = self._next_iterations(first_step)

    def before_run(self, run_context: Any) -> Any:
        """Says how many steps to make."""
        return tf.compat.v1.train.SessionRunArgs(
            self._loop.step, feed_dict={self._loop.iterations: self._iterations}
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Plans the next loop, or stops."""
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
        if self._last_step is None:
            return self._loop.max_iterations
        return min(self._loop.max_iterations, self._last_step - step)


class HostCallHook(tf.compat.v1.train.SessionRunHook):
    """Runs what a host_call returned along with each training loop."""

    def __init__(self, fetches: Any) -> None:
        """Also starts and closes the tf.summary writers that the graph has."""
        self._fetches = fetches
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

    def before_run(self, run_context: Any) -> Any:
        """Adds the host call to the run."""
        return tf.compat.v1.train.SessionRunArgs(self._fetches)


def host_call_hooks(spec: TPUEstimatorSpec) -> list[HostCallHook]:
    """The hook that runs a spec's host_call, if it has one; builds its ops in the default graph."""
    return [HostCallHook(call_on_host(spec.host_call))] if spec.host_call else []


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
