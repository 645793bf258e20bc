"""Streaming metrics, which return a (value, update op) pair, and the accuracy in one batch."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting


def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """Split (value, update op) pairs into a list of values and a list of update ops."""
    if not value_update_tuples:
        raise InvalidSetting("aggregate_metrics got no metrics. Pass at least one.")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


def aggregate_metric_map(
    names_to_tuples: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a dict of (value, update op) pairs into a dict of values and a dict of update ops."""
    values = {name: pair[0] for name, pair in names_to_tuples.items()}
    return values, {name: pair[1] for name, pair in names_to_tuples.items()}


v1 = tf.compat.v1


def streaming_covariance(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Compute the unbiased sample covariance over all batches.

    Args:
      weights: the number of times that each pair of prediction and label counts; the shape
        broadcasts to the shape of predictions; 1 by default.
      name: variable scope; "covariance" by default.

    Returns:
      The covariance of all batches so far, and the op that adds a batch and returns the new
      covariance; float32 scalars.
    """
    with v1.variable_scope(name, "covariance", [predictions, labels]):
        state, updated = _moments(predictions, labels, weights)
        return _make_metric(_covariance, state, updated, metrics_collections, updates_collections)


def streaming_pearson_correlation(
    predictions: Any,
    labels: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Compute Pearson's correlation coefficient over all batches.

    The coefficient is NaN if predictions or labels are constant.

    Returns:
      The coefficient of all batches so far, and the op that adds a batch and returns the new
      coefficient; float32 scalars.
    """
    with v1.variable_scope(name, "pearson_r", [predictions, labels]):
        state, updated = _moments(predictions, labels, weights)
        return _make_metric(_correlation, state, updated, metrics_collections, updates_collections)


def _covariance(state: Any) -> Any:
    return state[3] / tf.maximum(state[0] - 1.0, 1.0)


def _correlation(state: Any) -> Any:
    """Return Pearson's correlation coefficient, Sxy / √(Sxx Syy)."""
    return state[3] / (tf.sqrt(state[4]) * tf.sqrt(state[5]))


def _moments(x: Any, y: Any, weights: Any) -> tuple[Any, Any]:
    weights = tf.cast(1.0 if weights is None else weights, tf.float32)
    # Broadcast the weights to the shape of x at run time: the static batch size may be unknown.
    values = (x, y, tf.broadcast_to(weights, tf.shape(x)))
    x, y, weights = (tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values)
    state = v1.get_variable(
        "moments",
        [6],
        initializer=v1.zeros_initializer(),
        trainable=False,
        use_resource=True,
        collections=[v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.METRIC_VARIABLES],
    )
    count = tf.reduce_sum(weights)
    mean_x = tf.math.divide_no_nan(tf.reduce_sum(weights * x), count)
    mean_y = tf.math.divide_no_nan(tf.reduce_sum(weights * y), count)
    deviation_x, deviation_y = x - mean_x, y - mean_y
    previous = tf.unstack(state.read_value())
    total = previous[0] + count
    share = tf.math.divide_no_nan(count, total)
    shift_x, shift_y = mean_x - previous[1], mean_y - previous[2]
    cross_weight = previous[0] * share
    merged = tf.stack(
        [
            total,
            previous[1] + shift_x * share,
            previous[2] + shift_y * share,
            previous[3]
            + tf.reduce_sum(weights * deviation_x * deviation_y)
            + cross_weight * shift_x * shift_y,
            previous[4]
            + tf.reduce_sum(weights * deviation_x * deviation_x)
            + cross_weight * shift_x * shift_x,
            previous[5]
            + tf.reduce_sum(weights * deviation_y * deviation_y)
            + cross_weight * shift_y * shift_y,
        ]
    )
    with tf.control_dependencies([state.assign(merged, read_value=False)]):
        return state, tf.identity(merged)


def _make_metric(
    statistic: Any, state: Any, updated: Any, values: Any, updates: Any
) -> tuple[Any, Any]:
    """Return the (value, update op) pair of a statistic, and add both to their collections."""
    value, update = statistic(state.read_value()), statistic(updated)
    v1.add_to_collections(values or (), value)
    v1.add_to_collections(updates or (), update)
    return value, update


_EPSILON = 1e-7


def f1_score(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Compute the F1 score of all batches at several thresholds; the highest score counts.

    Predictions above a threshold count as positive.

    Args:
      predictions: float tensor of the shape of labels, with values from 0 to 1.
      weights: the weight of each prediction; the shape broadcasts to the shape of predictions; 1 by
        default.
      num_thresholds: number of thresholds, evenly spaced from 0 to 1.
      name: variable scope; "f1" by default.

    Returns:
      The highest F1 score of all batches so far, and the op that adds a batch and returns the new
      score; float32 scalars.
    """
    with v1.variable_scope(name, "f1", (labels, predictions, weights)):
        inner = [number / (num_thresholds - 1) for number in range(1, num_thresholds - 1)]
        # Put the first threshold below 0, so that even predictions of exactly 0 count as positive
        # there. Put the last one above 1, so that even predictions of exactly 1 count as negative.
        thresholds = [-_EPSILON, *inner, 1.0 + _EPSILON]
        counts = [
            metric(labels, predictions, thresholds, weights)
            for metric in (
                v1.metrics.true_positives_at_thresholds,
                v1.metrics.false_positives_at_thresholds,
                v1.metrics.false_negatives_at_thresholds,
            )
        ]
        value = _best_f1(*(value for value, _ in counts))
        update = _best_f1(*(update for _, update in counts))
        v1.add_to_collections(metrics_collections or (), value)
        v1.add_to_collections(updates_collections or (), update)
        return value, update


def _best_f1(true_positives: Any, false_positives: Any, false_negatives: Any) -> Any:
    """Return the highest F1 score over all thresholds; each argument is [num_thresholds]."""
    doubled = 2.0 * true_positives
    return tf.reduce_max(
        tf.math.divide_no_nan(doubled, doubled + false_positives + false_negatives)
    )


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
