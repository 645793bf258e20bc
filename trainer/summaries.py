"""Scalars for TensorBoard that come from Python and not from a summary op."""

from collections.abc import Mapping

import tensorflow as tf


def write_scalars(directory: str, values: Mapping[str, float], step: int) -> None:
    """Writes scalars to the event file of a directory, and flushes it."""
    summary = tf.compat.v1.Summary(
        value=[
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
        ]
    )
    # The writer refuses to be made in eager mode, though it needs no graph.
    with tf.Graph().as_default():
        writer = tf.compat.v1.summary.FileWriterCache.get(directory)
    writer.add_summary(summary, step)
    writer.flush()
