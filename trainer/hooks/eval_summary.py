"""Writes the results of an evaluation for TensorBoard."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from trainer.checkpoints import checkpoints
from trainer.hooks import event_files
from trainer.tensorflow_internals import evaluation, get_private_attribute


def count_steps(update: Any, steps_per_run: Any, hooks: Sequence[Any]) -> Any:
    """Build the op that updates the metrics of an evaluation and counts its steps.

    Args:
      steps_per_run: the number of steps of each run of `update`, a number or an integer tensor [].
      hooks: the hooks of the evaluation, from the user and from model_fn. If TensorFlow's hook that
        stops an evaluation after a number of steps is among them, it receives the count.

    Returns:
      The op. It is `update` itself if nothing can read the count, because there are no hooks and
      model_fn has not created the variable "eval_step".
    """
    if not hooks and not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.EVAL_STEP):
        return update
    step = evaluation._get_or_create_eval_step()
    with tf.control_dependencies([update]):
        count = tf.compat.v1.assign_add(step, tf.cast(steps_per_run, tf.int64))
        completed = tf.identity(count, name="evals_completed")
    for hook in hooks:
        if isinstance(hook, evaluation._StopAfterNEvalsHook):
            get_private_attribute(hook, "_set_evals_completed_tensor")(completed)
    return completed.op


logger = logging.getLogger("tensorflow.trainer")

CHECKPOINT_TAG = "checkpoint_path"


def write_eval_summary(directory: str, results: Mapping[str, Any], checkpoint: str | None) -> None:
    """Write the metrics of an evaluation, and the path of the checkpoint, to an event file.

    A scalar becomes a scalar summary, and an array becomes a tensor summary. A metric can also be a
    serialized Summary (bytes).

    Args:
      results: metric name → value, including "global_step".
      checkpoint: the path of the evaluated checkpoint; None if initial values were evaluated.
    """
    summary = tf.compat.v1.Summary()
    for name, value in results.items():
        if name != checkpoints.GLOBAL_STEP:
            summary.value.extend(_to_summary_values(name, value))
    if checkpoint is not None:
        value = summary.value.add(tag=CHECKPOINT_TAG)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.CopyFrom(tf.make_tensor_proto(checkpoint))
    event_files.write_summary(directory, summary, results[checkpoints.GLOBAL_STEP])


def _to_summary_values(name: str, value: Any) -> Iterable[Any]:
    """Convert a metric to Summary.Values; log a warning if its type cannot be converted."""
    if isinstance(value, bytes):
        return _parse_summary(name, value)
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return [tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))]
    if isinstance(value, np.ndarray):
        tensor = tf.make_tensor_proto(value)
        return [tf.compat.v1.Summary.Value(tag=name, tensor=tensor)]
    logger.warning(
        "metric %s has type %r, which cannot be written as a summary", name, type(value).__name__
    )
    return []


def _parse_summary(name: str, serialized: bytes) -> Iterable[Any]:
    """Return the values of a serialized Summary, renamed to NAME/0, NAME/1 and so on."""
    try:
        parsed = tf.compat.v1.Summary.FromString(serialized)
    except DecodeError:
        logger.warning("metric %s is a bytes value, but not a serialized Summary", name)
        return []
    for index, value in enumerate(parsed.value):
        value.tag = f"{name}/{index}"
    return parsed.value
