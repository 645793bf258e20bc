"""Metrics that grow from batch to batch: (value, update op)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def _swapped(metric: Callable[..., Any], name: str) -> Callable[..., Any]:
    def streaming(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return metric(labels, predictions, *args, **kwargs)

    streaming.__name__ = f"streaming_{name}"
    streaming.__doc__ = (
        f"tf.compat.v1.metrics.{name} with the predictions first; its other arguments follow."
    )
    return streaming


streaming_accuracy = _swapped(v1.metrics.accuracy, "accuracy")
streaming_auc = _swapped(v1.metrics.auc, "auc")
streaming_mean = v1.metrics.mean
streaming_mean_absolute_error = _swapped(v1.metrics.mean_absolute_error, "mean_absolute_error")
streaming_mean_iou = _swapped(v1.metrics.mean_iou, "mean_iou")
streaming_mean_squared_error = _swapped(v1.metrics.mean_squared_error, "mean_squared_error")
streaming_precision = _swapped(v1.metrics.precision, "precision")
streaming_recall = _swapped(v1.metrics.recall, "recall")
streaming_root_mean_squared_error = _swapped(
    v1.metrics.root_mean_squared_error, "root_mean_squared_error"
)


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """The share of predictions that are right, of this batch alone.

    Args:
      predictions, labels: of one shape and type: integers, bools or strings.
      weights: of the same shape, or one for all.
      name: of the ops.
    """
    with tf.name_scope(name or "accuracy"):
        right = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(right)
        weights = tf.cast(weights, tf.float32) * tf.ones_like(right)
        return tf.math.divide_no_nan(tf.reduce_sum(right * weights), tf.reduce_sum(weights))
