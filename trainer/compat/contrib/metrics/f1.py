"""The F1 score at the best threshold, over all batches."""

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

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
    """The largest F1 score of several thresholds, and the op that takes in a batch.

    At each threshold it is 2 tp / (2 tp + fp + fn), where predictions above it count as positive.

    Args:
      labels: bools, or 0 and 1.
      predictions: of the same shape, from 0 to 1.
      weights: how often each counts; broadcast to the shape; 1 by default.
      num_thresholds: they lie evenly from 0 to 1.
      metrics_collections, updates_collections: where the value and the op go.
      name: of the scope.
    """
    with v1.variable_scope(name, "f1", (labels, predictions, weights)):
        between = [number / (num_thresholds - 1) for number in range(1, num_thresholds - 1)]
        # The first and the last have everything on one side.
        thresholds = [-_EPSILON, *between, 1.0 + _EPSILON]
        counts = [
            metric(labels, predictions, thresholds, weights)
            for metric in (
                v1.metrics.true_positives_at_thresholds,
                v1.metrics.false_positives_at_thresholds,
                v1.metrics.false_negatives_at_thresholds,
            )
        ]
        value = _best_f1(*(each for each, _ in counts))
        update = _best_f1(*(each for _, each in counts))
        v1.add_to_collections(metrics_collections or (), value)
        v1.add_to_collections(updates_collections or (), update)
        return value, update


def _best_f1(true_positives: Any, false_positives: Any, false_negatives: Any) -> Any:
    twice = 2.0 * true_positives
    return tf.reduce_max(tf.math.divide_no_nan(twice, twice + false_positives + false_negatives))
