"""CheckpointInputPipelineHook of tf.contrib.data, which saves how far the input has been read."""

from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from trainer.estimator import plain_export

v1 = tf.compat.v1

# The key of the graph collection in which TensorFlow keeps the resource tensors of iterators.
_ITERATORS = "iterators"
# The file in model_dir that names the newest checkpoint of the iterators' states. Its name differs
# from "checkpoint", the file that names the newest checkpoint of the model.
_STATE_FILE = "checkpoint_input"
_BASENAME = "input.ckpt"


class CheckpointInputPipelineHook(tf.compat.v1.train.SessionRunHook):
    """Saves the states of a graph's iterators in model_dir, and restores them in the next training.

    The states are saved as often as the estimator's checkpoints, and at the end of the training.
    Use the hook on the CPU and GPU only.

    Args:
      external_state_policy: what to do about state outside of the iterators, such as the
        state of a random generator; see tf.data.experimental.make_saveable_from_iterator.
    """

    def __init__(self, estimator: Any, external_state_policy: Any = None) -> None:
        plain_export.check_is_estimator(estimator)
        config = estimator.config
        self._directory = estimator.model_dir
        self._prefix = f"{self._directory}/{_BASENAME}"
        if config.num_worker_replicas > 1:
            # Add the worker's number to the file name, because each worker reads its own input and
            # all workers share model_dir.
            self._prefix += f"_{config.task_type}_{config.task_id}"
        self._state_file = _STATE_FILE + self._prefix.removeprefix(f"{self._directory}/{_BASENAME}")
        self._external_state_policy = external_state_policy
        interval = (config.save_checkpoints_secs, config.save_checkpoints_steps)
        self._timer = v1.train.SecondOrStepTimer(*interval) if any(interval) else None
        self._saver: Any = None
        self._step: Any = None
        self._is_restored = False
        self._steps_per_run = 1

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        """Build the ops that save and restore the states of the graph's iterators."""
        saveables = [
            # The graph's collection contains the resources of the iterators, but not the iterators
            # themselves.
            tf.data.experimental.make_saveable_from_iterator(
                SimpleNamespace(_iterator_resource=resource),
                external_state_policy=self._external_state_policy,
            )
            for resource in v1.get_collection(_ITERATORS)
        ]
        self._step = v1.train.get_global_step()
        self._saver = v1.train.Saver(saveables, max_to_keep=1) if saveables else None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Make `before_run` restore the iterators' states, because a new session resets them."""
        self._is_restored = False

    def before_run(self, run_context: Any) -> Any:
        """Restore the iterators' states before the first call of run() in a session.

        If no states have been saved yet, save the initial states instead.
        """
        if not self._is_restored:
            self._is_restored = True
            self._restore(run_context.session)
        return v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Save the iterators' states if the interval between checkpoints has passed."""
        # The fetched global step can be too small, because TensorFlow can fetch it before the
        # training loop increments it. So read the exact step by another session.run.
        latest_step = int(run_values.results) + self._steps_per_run
        if self._timer is None or not self._timer.should_trigger_for_step(latest_step):
            return
        step = int(run_context.session.run(self._step))
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            self._save(run_context.session, step)

    def end(self, session: Any) -> None:
        """Save the iterators' states at the end of the training."""
        self._save(session, int(session.run(self._step)))

    def _restore(self, session: Any) -> None:
        step = int(session.run(self._step))
        newest = tf.train.latest_checkpoint(self._directory, self._state_file)
        if newest is None:
            self._save(session, step)
        elif self._saver is not None:
            self._saver.restore(session, newest)
        if self._timer is not None:
            self._timer.update_last_triggered_step(step)

    def _save(self, session: Any, step: int) -> None:
        if self._saver is not None:
            self._saver.save(
                session,
                self._prefix,
                step,
                latest_filename=self._state_file,
                write_meta_graph=False,
            )
