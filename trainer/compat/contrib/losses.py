"""tf.contrib.losses: TensorFlow's own, which take the labels first; these take them second."""

from typing import Any

from tensorflow.compat.v1 import losses as _tensorflows
from tensorflow.compat.v1.losses import (
    add_loss,
    compute_weighted_loss,
    get_losses,
    get_regularization_losses,
    get_total_loss,
)

from trainer.compat.contrib import absence

__all__ = [
    "absolute_difference",
    "add_loss",
    "compute_weighted_loss",
    "get_losses",
    "get_regularization_losses",
    "get_total_loss",
    "hinge_loss",
    "log_loss",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]


def absolute_difference(
    predictions: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """The mean of |predictions - labels|; see tf.compat.v1.losses.absolute_difference."""
    return _tensorflows.absolute_difference(labels, predictions, weights, scope)


def mean_squared_error(predictions: Any, labels: Any, weights: Any = 1.0, scope: Any = None) -> Any:
    """The mean of (predictions - labels)²; see tf.compat.v1.losses.mean_squared_error."""
    return _tensorflows.mean_squared_error(labels, predictions, weights, scope)


def log_loss(
    predictions: Any, labels: Any, weights: Any = 1.0, epsilon: float = 1e-7, scope: Any = None
) -> Any:
    """The mean log loss; see tf.compat.v1.losses.log_loss."""
    return _tensorflows.log_loss(labels, predictions, weights, epsilon, scope)


def hinge_loss(logits: Any, labels: Any, scope: Any = None) -> Any:
    """The mean hinge loss; see tf.compat.v1.losses.hinge_loss."""
    return _tensorflows.hinge_loss(labels, logits, scope=scope)


def sigmoid_cross_entropy(
    logits: Any,
    multi_class_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: Any = None,
) -> Any:
    """The mean cross entropy of sigmoids; see tf.compat.v1.losses.sigmoid_cross_entropy."""
    return _tensorflows.sigmoid_cross_entropy(
        multi_class_labels, logits, weights, label_smoothing, scope
    )


def softmax_cross_entropy(
    logits: Any,
    onehot_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: Any = None,
) -> Any:
    """The mean cross entropy of a softmax; see tf.compat.v1.losses.softmax_cross_entropy."""
    return _tensorflows.softmax_cross_entropy(
        onehot_labels, logits, weights, label_smoothing, scope
    )


def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """The same for labels that are numbers of classes, [b]."""
    return _tensorflows.sparse_softmax_cross_entropy(labels, logits, weights, scope)


__getattr__ = absence.of("tf.contrib.losses", __all__)
