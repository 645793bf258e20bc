"""Reads the results of earlier evaluations from TensorBoard event files."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from trainer.checkpoints.checkpoints import GLOBAL_STEP


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
