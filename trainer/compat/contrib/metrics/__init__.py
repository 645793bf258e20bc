"""tf.contrib.metrics: TensorFlow's metrics with tf.contrib's order of arguments.

In these functions the predictions precede the labels, whereas in tf.compat.v1.metrics the labels
come first. `f1_score` is the exception: its labels come first in tf.contrib too.
"""

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.metrics.aggregation import aggregate_metric_map, aggregate_metrics
from trainer.compat.contrib.metrics.correlation import (
    streaming_covariance,
    streaming_pearson_correlation,
)
from trainer.compat.contrib.metrics.f1 import f1_score
from trainer.compat.contrib.metrics.streaming import (
    accuracy,
    streaming_accuracy,
    streaming_auc,
    streaming_false_negatives,
    streaming_false_negatives_at_thresholds,
    streaming_false_positives,
    streaming_false_positives_at_thresholds,
    streaming_mean,
    streaming_mean_absolute_error,
    streaming_mean_cosine_distance,
    streaming_mean_iou,
    streaming_mean_relative_error,
    streaming_mean_squared_error,
    streaming_mean_tensor,
    streaming_percentage_less,
    streaming_precision,
    streaming_precision_at_thresholds,
    streaming_recall,
    streaming_recall_at_thresholds,
    streaming_root_mean_squared_error,
    streaming_sensitivity_at_specificity,
    streaming_sparse_average_precision_at_k,
    streaming_sparse_precision_at_k,
    streaming_sparse_recall_at_k,
    streaming_specificity_at_sensitivity,
    streaming_true_negatives,
    streaming_true_negatives_at_thresholds,
    streaming_true_positives,
    streaming_true_positives_at_thresholds,
)

__all__ = [
    "accuracy",
    "aggregate_metric_map",
    "aggregate_metrics",
    "f1_score",
    "streaming_accuracy",
    "streaming_auc",
    "streaming_covariance",
    "streaming_false_negatives",
    "streaming_false_negatives_at_thresholds",
    "streaming_false_positives",
    "streaming_false_positives_at_thresholds",
    "streaming_mean",
    "streaming_mean_absolute_error",
    "streaming_mean_cosine_distance",
    "streaming_mean_iou",
    "streaming_mean_relative_error",
    "streaming_mean_squared_error",
    "streaming_mean_tensor",
    "streaming_pearson_correlation",
    "streaming_percentage_less",
    "streaming_precision",
    "streaming_precision_at_thresholds",
    "streaming_recall",
    "streaming_recall_at_thresholds",
    "streaming_root_mean_squared_error",
    "streaming_sensitivity_at_specificity",
    "streaming_sparse_average_precision_at_k",
    "streaming_sparse_precision_at_k",
    "streaming_sparse_recall_at_k",
    "streaming_specificity_at_sensitivity",
    "streaming_true_negatives",
    "streaming_true_negatives_at_thresholds",
    "streaming_true_positives",
    "streaming_true_positives_at_thresholds",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.metrics", __all__)
