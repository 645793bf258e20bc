"""Reads the results of earlier evaluations from TensorBoard event files."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from trainer.checkpoints.checkpoints import GLOBAL_STEP
from trainer.execution.train_loop import TrainLoop
from trainer.hooks.training_hooks import StepRangeHook
from trainer.tensorflow_internals import tensor_util


def add_loss_summary(loss: Any) -> None:
    """Add a scalar summary named "loss" to the graph, unless the model has one already."""
    summaries = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
    if not any(_has_tag(summary.op, b"loss") for summary in summaries):
        tf.compat.v1.summary.scalar("loss", loss)


def _has_tag(operation: Any, tag: bytes) -> bool:
    """Return whether a summary op writes a tag that is known in the graph."""
    found = tensor_util.constant_value(operation.inputs[0]) if operation.inputs else None
    return found is not None and tag in found.ravel()


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


def read_eval_events(directory: str) -> dict[int, dict[str, float]]:
    """Read the metrics of all evaluations from the event files of a directory.

    If a step was evaluated several times, the result holds the last written value of each metric.

    Returns:
      Global step → metric name → value, in ascending order of steps; empty if the directory holds
      no event files.
    """
    results: dict[int, dict[str, float]] = {}
    # Later values replace earlier values: the files are read in the order of their names, which
    # contain the creation time.
    for step, metrics in _read_scalars(os.path.join(directory, "*.tfevents.*")):
        results.setdefault(step, {}).update(metrics)
    return dict(sorted(results.items()))


def read_matching_events(pattern: str) -> list[dict[str, Any]]:
    """Read the results of evaluations from the event files that match a pattern.

    Every evaluation writes a loss. Events without a loss are not results of an evaluation, and are
    skipped.

    Args:
      pattern: a glob pattern, such as "model_dir/eval/*.tfevents.*".

    Returns:
      The results in the order of writing, in the form that evaluate() returns: metric name → value,
      including "global_step".
    """
    return [
        {**metrics, GLOBAL_STEP: step}
        for step, metrics in _read_scalars(pattern)
        if "loss" in metrics
    ]


def _read_scalars(pattern: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the scalar summaries of the event files that match a glob pattern."""
    for path in sorted(tf.io.gfile.glob(pattern)):
        for event in _read_events(path):
            metrics = {
                value.tag: value.simple_value
                for value in event.summary.value
                if value.HasField("simple_value")
            }
            if metrics:
                yield event.step, metrics


def _read_events(path: str) -> Iterable[Any]:
    """Yield the events of a file; ignore a truncated record at the end."""
    try:
        yield from tf.compat.v1.train.summary_iterator(path)
    except tf.errors.DataLossError:
        # The last record is truncated, because its writer was killed or is still writing it. Ignore
        # the record.
        return
