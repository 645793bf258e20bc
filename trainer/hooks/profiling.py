"""TensorBoard's profiler over a range of training steps."""

import logging
from typing import Any

import tensorflow as tf

from trainer.execution.train_loop import TrainLoop
from trainer.hooks.training_hooks import StepRangeHook

logger = logging.getLogger("tensorflow.trainer")


class ProfileStepsHook(tf.compat.v1.train.SessionRunHook):
    """Captures the loops that make the steps of a range, first and last included."""

    def __init__(
        self, loop: TrainLoop, directory: str, start: StepRangeHook, steps: tuple[int, int]
    ) -> None:
        """Captures nothing yet.

        Args:
          loop: what is trained.
          directory: the profile goes to plugins/profile below it.
          start: knows the step that training starts after.
          steps: the range to capture, in global steps.
        """
        self._loop = loop
        self._directory = directory
        self._start = start
        self._step = 0
        self._first, self._last = steps
        self._is_running = self._is_done = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Counts from the session's step on."""
        self._step = self._start.step

    def before_run(self, run_context: Any) -> Any:
        """Starts the profiler, if this loop can reach the range."""
        can_reach = self._step + self._loop.max_iterations >= self._first
        if can_reach and self._step < self._last and not self._is_running and not self._is_done:
            tf.profiler.experimental.start(self._directory)
            self._is_running = True
            logger.info("profiling after step %d", self._step)
        return tf.compat.v1.train.SessionRunArgs(self._loop.step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stops it, if the range is over."""
        self._step = int(run_values.results)
        if self._is_running and self._step >= self._last:
            self.close()

    def end(self, session: Any) -> None:
        """Stops it, if training ends within the range."""
        self.close()

    def close(self) -> None:
        """Stops the profiler, if it runs; a failed training must not leave it running."""
        if self._is_running:
            self._is_running, self._is_done = False, True
            tf.profiler.experimental.stop()
            logger.info("profiled up to step %d, see %s", self._step, self._directory)
