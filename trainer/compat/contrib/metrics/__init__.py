"""tf.contrib.metrics: TensorFlow's own, which take the labels first; these take them second."""

from trainer.compat.contrib import absence
from trainer.compat.contrib.metrics.aggregation import aggregate_metric_map, aggregate_metrics
from trainer.compat.contrib.metrics.correlation import (
    streaming_covariance,
    streaming_pearson_correlation,
)
from trainer.compat.contrib.metrics.streaming import (
    accuracy,
    streaming_accuracy,
    streaming_auc,
    streaming_mean,
    streaming_mean_absolute_error,
    streaming_mean_iou,
    streaming_mean_squared_error,
    streaming_precision,
    streaming_recall,
    streaming_root_mean_squared_error,
)

__all__ = [
    "accuracy",
    "aggregate_metric_map",
    "aggregate_metrics",
    "streaming_accuracy",
    "streaming_auc",
    "streaming_covariance",
    "streaming_mean",
    "streaming_mean_absolute_error",
    "streaming_mean_iou",
    "streaming_mean_squared_error",
    "streaming_pearson_correlation",
    "streaming_precision",
    "streaming_recall",
    "streaming_root_mean_squared_error",
]

__getattr__ = absence.of("tf.contrib.metrics", __all__)
