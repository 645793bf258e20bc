"""How two quantities go together, over all batches.

Means and sums of products of deviations are joined batch by batch, so that large values lose
nothing.
Source: Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances", 1979.
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
    """The unbiased sample covariance, and the op that takes in a batch.

    Args:
      predictions, labels: of one shape.
      weights: how often each pair counts; broadcast to the shape; 1 by default.
      metrics_collections, updates_collections: where the value and the op go.
      name: of the scope.
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
    """Pearson's correlation, from -1 to 1, and the op that takes in a batch.

    Where one of them never changes it is no number. Args: see `streaming_covariance`.
    """
    with v1.variable_scope(name, "pearson_r", [predictions, labels]):
        state, updated = _moments(predictions, labels, weights)
        return _make_metric(_correlation, state, updated, metrics_collections, updates_collections)


def _covariance(state: Any) -> Any:
    return state[3] / tf.maximum(state[0] - 1.0, 1.0)


def _correlation(state: Any) -> Any:
    return state[3] / (tf.sqrt(state[4]) * tf.sqrt(state[5]))


def _moments(x: Any, y: Any, weights: Any) -> tuple[Any, Any]:
    """The variable of (n, mean x, mean y, Sxy, Sxx, Syy), and its value with this batch in."""
    x, y = (tf.reshape(tf.cast(each, tf.float32), [-1]) for each in (x, y))
    # The count of a batch may differ from that of another, so that there is no shape to compare.
    weights = tf.ones_like(x) if weights is None else tf.cast(weights, tf.float32)
    weights = tf.reshape(tf.broadcast_to(weights, tf.shape(x)), [-1])
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
    off_x, off_y = x - mean_x, y - mean_y
    before = tf.unstack(state.read_value())
    total = before[0] + count
    share = tf.math.divide_no_nan(count, total)
    to_x, to_y = mean_x - before[1], mean_y - before[2]
    between = before[0] * share
    joined = tf.stack(
        [
            total,
            before[1] + to_x * share,
            before[2] + to_y * share,
            before[3] + tf.reduce_sum(weights * off_x * off_y) + between * to_x * to_y,
            before[4] + tf.reduce_sum(weights * off_x * off_x) + between * to_x * to_x,
            before[5] + tf.reduce_sum(weights * off_y * off_y) + between * to_y * to_y,
        ]
    )
    with tf.control_dependencies([state.assign(joined, read_value=False)]):
        return state, tf.identity(joined)


def _make_metric(of: Any, state: Any, updated: Any, values: Any, updates: Any) -> tuple[Any, Any]:
    value, update = of(state.read_value()), of(updated)
    v1.add_to_collections(values or (), value)
    v1.add_to_collections(updates or (), update)
    return value, update
