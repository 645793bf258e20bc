"""The results of an evaluation, written for TensorBoard."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from trainer.checkpoints import checkpoints
from trainer.hooks import summaries

logger = logging.getLogger("tensorflow.trainer")

CHECKPOINT_TAG = "checkpoint_path"


def write_eval_summary(directory: str, results: Mapping[str, Any], checkpoint: str | None) -> None:
    """Writes each metric under its name, and which checkpoint they are of.

    A scalar becomes a scalar summary, a serialized Summary is written with its values numbered
    below the name, and an array becomes a tensor summary.

    Args:
      directory: where the event file is.
      results: name → value, the global step included.
      checkpoint: what was evaluated; None for initial values.
    """
    summary = tf.compat.v1.Summary()
    for name, value in results.items():
        if name != checkpoints.GLOBAL_STEP:
            summary.value.extend(_values(name, value))
    if checkpoint is not None:
        value = summary.value.add(tag=CHECKPOINT_TAG)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.CopyFrom(tf.make_tensor_proto(checkpoint))
    summaries.write_summary(directory, summary, results[checkpoints.GLOBAL_STEP])


def _values(name: str, value: Any) -> Iterable[Any]:
    if isinstance(value, bytes):
        return _of_serialized(name, value)
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "bifu":
        return [tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))]
    if isinstance(value, np.ndarray):
        tensor = tf.make_tensor_proto(value)
        return [tf.compat.v1.Summary.Value(tag=name, tensor=tensor)]
    logger.warning("metric %s is %r, which has no form as a summary", name, type(value).__name__)
    return []


def _of_serialized(name: str, serialized: bytes) -> Iterable[Any]:
    try:
        parsed = tf.compat.v1.Summary.FromString(serialized)
    except DecodeError:
        logger.warning("metric %s is bytes that are no serialized summary", name)
        return []
    for index, value in enumerate(parsed.value):
        value.tag = f"{name}/{index}"
    return parsed.value
