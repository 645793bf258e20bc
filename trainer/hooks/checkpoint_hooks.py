"""Hooks that stop the training of each task of a cluster at a global step.

Workers first wait until the checkpoint of this step is written.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.checkpoints import checkpoints

logger = logging.getLogger("tensorflow.trainer")


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> Any:
    """Make a hook that stops training at a global step.

    The chief stops at the step.

    Args:
      wait_after_file_check_secs: the interval at which a worker looks for the checkpoint, in
        seconds.
    """
    validation.check_integer("last_step", last_step, least=1)
    if estimator.config.is_chief or getattr(estimator, "runs_on_several_hosts", False):
        return tf.compat.v1.train.StopAtStepHook(last_step=last_step)
    return StopAtCheckpointHook(estimator.model_dir, last_step, wait_after_file_check_secs)


class StopAtCheckpointHook(tf.compat.v1.train.SessionRunHook):
    """Stops training after a global step, once a checkpoint of that or a later step exists.

    Args:
      wait_after_file_check_secs: the interval at which the hook looks for the checkpoint, in
        seconds.
    """

    def __init__(
        self,
        model_dir: str,
        last_step: int,
        wait_after_file_check_secs: float = 30,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not model_dir:
            raise InvalidSetting(f"model_dir is {model_dir!r}. Name where the checkpoints go.")
        validation.check_integer("last_step", last_step, least=1)
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_secs = wait_after_file_check_secs
        self._sleep = sleep
        self._steps_per_run = 1
        self._global_step: Any = None

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        """Find the global step variable of the graph."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        """Let the next training loop fetch the global step, for `after_run`."""
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Stop training at the last step, after waiting for its checkpoint."""
        # The fetched global step can be too small, because TensorFlow can fetch it before the
        # training loop increments it. So read the exact step by another session.run.
        if run_values.results + self._steps_per_run < self._last_step:
            return
        if run_context.session.run(self._global_step) < self._last_step:
            return
        logger.info("waiting for the checkpoint of step %d", self._last_step)
        while not self._is_written():
            self._sleep(self._wait_secs)
        run_context.request_stop()

    def _is_written(self) -> bool:
        """Return whether a checkpoint of the last step or of a later step exists."""
        newest = tf.train.latest_checkpoint(self._model_dir)
        return newest is not None and checkpoints.read_global_step(newest) >= self._last_step
