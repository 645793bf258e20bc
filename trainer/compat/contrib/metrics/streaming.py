"""Streaming metrics, which return a (value, update op) pair, and the accuracy in one batch."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


def _predictions_first(metric: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a metric of TensorFlow, but takes predictions before labels."""

    def streaming(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return metric(labels, predictions, *args, **kwargs)

    streaming.__name__ = f"streaming_{metric.__name__}"
    streaming.__doc__ = (
        f"Call tf.compat.v1.metrics.{metric.__name__} with the predictions before the labels."
    )
    return streaming


streaming_accuracy = _predictions_first(v1.metrics.accuracy)
streaming_auc = _predictions_first(v1.metrics.auc)
streaming_false_negatives = _predictions_first(v1.metrics.false_negatives)
streaming_false_negatives_at_thresholds = _predictions_first(
    v1.metrics.false_negatives_at_thresholds
)
streaming_false_positives = _predictions_first(v1.metrics.false_positives)
streaming_false_positives_at_thresholds = _predictions_first(
    v1.metrics.false_positives_at_thresholds
)
streaming_mean = v1.metrics.mean
streaming_mean_absolute_error = _predictions_first(v1.metrics.mean_absolute_error)
streaming_mean_cosine_distance = _predictions_first(v1.metrics.mean_cosine_distance)
streaming_mean_iou = _predictions_first(v1.metrics.mean_iou)
streaming_mean_relative_error = _predictions_first(v1.metrics.mean_relative_error)
streaming_mean_squared_error = _predictions_first(v1.metrics.mean_squared_error)
streaming_mean_tensor = v1.metrics.mean_tensor
streaming_percentage_less = v1.metrics.percentage_below
streaming_precision = _predictions_first(v1.metrics.precision)
streaming_precision_at_thresholds = _predictions_first(v1.metrics.precision_at_thresholds)
streaming_recall = _predictions_first(v1.metrics.recall)
streaming_recall_at_thresholds = _predictions_first(v1.metrics.recall_at_thresholds)
streaming_root_mean_squared_error = _predictions_first(v1.metrics.root_mean_squared_error)
streaming_sensitivity_at_specificity = _predictions_first(v1.metrics.sensitivity_at_specificity)
streaming_sparse_average_precision_at_k = _predictions_first(v1.metrics.average_precision_at_k)
streaming_sparse_precision_at_k = _predictions_first(v1.metrics.precision_at_k)
streaming_sparse_recall_at_k = _predictions_first(v1.metrics.recall_at_k)
streaming_specificity_at_sensitivity = _predictions_first(v1.metrics.specificity_at_sensitivity)
streaming_true_negatives = _predictions_first(v1.metrics.true_negatives)
streaming_true_negatives_at_thresholds = _predictions_first(v1.metrics.true_negatives_at_thresholds)
streaming_true_positives = _predictions_first(v1.metrics.true_positives)
streaming_true_positives_at_thresholds = _predictions_first(v1.metrics.true_positives_at_thresholds)


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Return the share of correct predictions in this batch.

    Args:
      weights: weight of each prediction, of the same shape, or a scalar; 1 by default.
    """
    with tf.name_scope(name or "accuracy"):
        is_correct = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(is_correct)
        weights = tf.cast(weights, tf.float32) * tf.ones_like(is_correct)
        return tf.math.divide_no_nan(tf.reduce_sum(is_correct * weights), tf.reduce_sum(weights))
