"""What a run writes for TensorBoard."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.execution.train_loop import TrainLoop
from trainer.hooks.training_hooks import StepRangeHook


def add_loss_summary(loss: Any) -> None:
    """A summary of the loss named "loss", unless the model has made one itself."""
    made = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
    if not any(each.op.name == "loss" for each in made):
        tf.compat.v1.summary.scalar("loss", loss)


class SummaryHook(tf.compat.v1.train.SessionRunHook):
    """Writes the model's summaries after every so many steps, under the step they are of."""

    def __init__(
        self,
        loop: TrainLoop,
        scaffold: Any,
        directory: str,
        start: StepRangeHook,
        every_n_steps: int,
    ) -> None:
        """Writes after the first loop, and then whenever `every_n_steps` have gone by."""
        self._loop = loop
        self._scaffold = scaffold
        self._directory = directory
        self._start = start
        self._step = self._next_step = 0
        self._every_n_steps = every_n_steps

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Counts from the session's step on."""
        self._step = self._next_step = self._start.step

    def before_run(self, run_context: Any) -> Any:
        """Asks for the summaries, if this loop can reach the step at which they are due."""
        fetches = {"step": self._loop.step}
        if self._step + self._loop.max_iterations >= self._next_step:
            fetches["summary"] = self._scaffold.summary_op
        return tf.compat.v1.train.SessionRunArgs(fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes them."""
        self._step = int(run_values.results["step"])
        summary = run_values.results.get("summary")
        if summary is not None and self._step >= self._next_step:
            self._next_step = self._step + self._every_n_steps
            _writer(self._directory).add_summary(summary, self._step)

    def end(self, session: Any) -> None:
        """Flushes what is written."""
        _writer(self._directory).flush()


def write_scalars(directory: str, values: Mapping[str, float], step: int) -> None:
    """Writes scalars to the event file of a directory, and flushes it."""
    summary = tf.compat.v1.Summary(
        value=[
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
    )
    write_summary(directory, summary, step)


def write_summary(directory: str, summary: Any, step: int) -> None:
    """Writes a Summary to the event file of a directory, and flushes it."""
    writer = _writer(directory)
    writer.add_summary(summary, step)
    writer.flush()


def _writer(directory: str) -> Any:
    # It refuses to be made in eager mode, though it needs no graph.
    with tf.Graph().as_default():
        return tf.compat.v1.summary.FileWriterCache.get(directory)
