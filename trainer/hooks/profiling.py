"""Profiles a range of training steps for TensorBoard."""

import logging
from typing import Any

import tensorflow as tf

from trainer.execution.train_loop import TrainLoop
from trainer.hooks.training_hooks import StepRangeHook

logger = logging.getLogger("tensorflow.trainer")


class ProfileStepsHook(tf.compat.v1.train.SessionRunHook):
    """Profiles the training loops that make the steps of a given range of global steps."""

    def __init__(
        self, loop: TrainLoop, directory: str, start: StepRangeHook, steps: tuple[int, int]
    ) -> None:
        self._loop = loop
        self._directory = directory
        self._start = start
        self._step = 0
        self._first, self._last = steps
        self._is_running = self._is_done = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Record the global step of the new session, at which the next training loop starts."""
        self._step = self._start.step

    def before_run(self, run_context: Any) -> Any:
        """Start the profiler if the next training loop can reach the first step of the range."""
        can_reach = self._step + self._loop.max_iterations >= self._first
        if can_reach and self._step < self._last and not self._is_running and not self._is_done:
            tf.profiler.experimental.start(self._directory)
            self._is_running = True
            logger.info("profiling after step %d", self._step)
        return tf.compat.v1.train.SessionRunArgs(self._loop.step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop the profiler if the last step of the range is done."""
        self._step = int(run_values.results)
        if self._is_running and self._step >= self._last:
            self.close()

    def end(self, session: Any) -> None:
        """Stop the profiler if training ends within the range."""
        self.close()

    def close(self) -> None:
        """Stop the profiler if it runs. Call this method after a failed training run as well."""
        if self._is_running:
            self._is_running, self._is_done = False, True
            tf.profiler.experimental.stop()
            logger.info("profiled up to step %d, see %s", self._step, self._directory)
