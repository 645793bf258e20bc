"""Writes summaries for TensorBoard."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.execution.train_loop import TrainLoop
from trainer.hooks.training_hooks import StepRangeHook


def add_loss_summary(loss: Any) -> None:
    """Add a scalar summary named "loss" to the graph, unless the model has one already."""
    summaries = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
    if not any(summary.op.name == "loss" for summary in summaries):
        tf.compat.v1.summary.scalar("loss", loss)


class SummaryHook(tf.compat.v1.train.SessionRunHook):
    """Writes the model's summaries at intervals of training steps."""

    def __init__(
        self,
        loop: TrainLoop,
        scaffold: Any,
        directory: str,
        start: StepRangeHook,
        every_n_steps: int,
    ) -> None:
        self._loop = loop
        self._scaffold = scaffold
        self._directory = directory
        self._start = start
        self._step = self._next_step = 0
        self._has_started = False
        self._every_n_steps = every_n_steps

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Record the global step of the new session, from which the steps are counted."""
        self._step = self._next_step = self._start.step

    def before_run(self, run_context: Any) -> Any:
        """Let the next training loop fetch the summaries if they can be due when the loop ends."""
        fetches = {"step": self._loop.step}
        if self._step + self._loop.max_iterations >= self._next_step:
            fetches["summary"] = self._scaffold.summary_op
        return tf.compat.v1.train.SessionRunArgs(fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write the summaries if they are due."""
        self._step = int(run_values.results["step"])
        if not self._has_started:
            # Let TensorBoard drop what an earlier training has written for later steps.
            self._has_started = True
            started = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
            _writer(self._directory).add_session_log(started, self._step)
        summary = run_values.results.get("summary")
        if summary is not None and self._step >= self._next_step:
            self._next_step = self._step + self._every_n_steps
            _writer(self._directory).add_summary(summary, self._step)

    def end(self, session: Any) -> None:
        """Flush the event file."""
        _writer(self._directory).flush()


def write_scalars(directory: str, values: Mapping[str, float], step: int) -> None:
    """Write scalar values to the event file of a directory, and flush the file."""
    summary = tf.compat.v1.Summary(
        value=[
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
    )
    write_summary(directory, summary, step)


def write_summary(directory: str, summary: Any, step: int) -> None:
    """Write a Summary to the event file of a directory, and flush the file."""
    writer = _writer(directory)
    writer.add_summary(summary, step)
    writer.flush()


def _writer(directory: str) -> Any:
    # Create the FileWriter within a graph, because TensorFlow refuses to create one in eager mode.
    with tf.Graph().as_default():
        return tf.compat.v1.summary.FileWriterCache.get(directory)
