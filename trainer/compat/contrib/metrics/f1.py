"""The F1 score as a streaming metric, which is computed over all batches."""

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
