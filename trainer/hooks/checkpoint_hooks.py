"""Hooks that stop training at a checkpoint."""

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.checkpoints import checkpoints
from trainer.config import validation

logger = logging.getLogger("tensorflow.trainer")


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> Any:
    """A hook that stops training at a step, workers only once the chief has written it.

    A worker that left earlier would take the variables that it holds along.

    Args:
      estimator: what is trained.
      last_step: the global step to stop at.
      wait_after_file_check_secs: how long a worker waits between two looks for the checkpoint.

    Raises:
      InvalidSetting: last_step is no positive whole number.
    """
    validation.check("last_step", last_step, least=1, optional=False)
    if estimator.config.is_chief:
        return tf.compat.v1.train.StopAtStepHook(last_step=last_step)
    return StopAtCheckpointHook(estimator.model_dir, last_step, wait_after_file_check_secs)


class StopAtCheckpointHook(tf.compat.v1.train.SessionRunHook):
    """Stops after a step, once a checkpoint of it, or of a later one, is there."""

    def __init__(
        self,
        model_dir: str,
        last_step: int,
        wait_after_file_check_secs: float = 30,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Looks for the checkpoint in model_dir, waiting so many seconds between two looks."""
        if not model_dir:
            raise InvalidSetting(f"model_dir is {model_dir!r}. Name where the checkpoints go.")
        validation.check("last_step", last_step, least=1, optional=False)
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_secs = wait_after_file_check_secs
        self._sleep = sleep
        self._steps_per_run = 1
        self._global_step: Any = None

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        """Asks for the step."""
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Waits for the checkpoint at the last step, then stops."""
        # The step may have been read before the run counted.
        if run_values.results + self._steps_per_run < self._last_step:
            return
        if run_context.session.run(self._global_step) < self._last_step:
            return
        logger.info("waiting for the checkpoint of step %d", self._last_step)
        while not self._is_written():
            self._sleep(self._wait_secs)
        run_context.request_stop()

    def _is_written(self) -> bool:
        newest = tf.train.latest_checkpoint(self._model_dir)
        return newest is not None and checkpoints.read_global_step(newest) >= self._last_step
