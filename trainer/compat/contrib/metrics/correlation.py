"""Streaming covariance and Pearson correlation.

Each metric keeps running statistics: means, and sums of products of deviations from the means. The
statistics of each batch are merged into them.
"""

from typing import Any

import tensorflow as tf

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
