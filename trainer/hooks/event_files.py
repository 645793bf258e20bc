"""The results of earlier evaluations, read back from what was written for TensorBoard."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from trainer.checkpoints.checkpoints import GLOBAL_STEP


def read_eval_events(directory: str) -> dict[int, dict[str, float]]:
    """Global step → metric → value, in the order of steps; empty where nothing is written.

    Where a step was evaluated twice, what was written last counts.

    Args:
      directory: where an evaluation writes: model_dir/eval, or model_dir/eval_NAME.
    """
    found: dict[int, dict[str, float]] = {}
    # The names carry the time of their making: later files come later.
    for step, metrics in _results(os.path.join(directory, "*.tfevents.*")):
        found.setdefault(step, {}).update(metrics)
    return dict(sorted(found.items()))


def read_matching_events(pattern: str) -> list[dict[str, Any]]:
    """The results of whole evaluations, as evaluate() returns them, in the order of writing.

    An evaluation always has a loss; what else was written in its directory is left out.

    Args:
      pattern: the files to read, "model_dir/eval/*.tfevents.*".
    """
    return [
        {**metrics, GLOBAL_STEP: step} for step, metrics in _results(pattern) if "loss" in metrics
    ]


def _results(pattern: str) -> Iterator[tuple[int, dict[str, float]]]:
    for path in sorted(tf.io.gfile.glob(pattern)):
        for event in _events(path):
            metrics = {
                value.tag: value.simple_value
                for value in event.summary.value
                if value.HasField("simple_value")
            }
            if metrics:
                yield event.step, metrics


def _events(path: str) -> Iterable[Any]:
    try:
        yield from tf.compat.v1.train.summary_iterator(path)
    except tf.errors.DataLossError:
        # The last record of a process that was killed, or is just being written.
        return
