"""tf.contrib.losses: TensorFlow's own, which take the labels first; these take them second."""

from typing import Any

import tensorflow as tf
from tensorflow.compat.v1 import losses as _tf_losses
from tensorflow.compat.v1.losses import (
    add_loss,
    get_losses,
    get_regularization_losses,
    get_total_loss,
)

from trainer.compat.contrib_names import missing_names

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

v1 = tf.compat.v1


def compute_weighted_loss(losses: Any, weights: Any = 1.0, scope: Any = None) -> Any:
    """The mean of losses, weighted, over those whose weight is not 0.

    Args:
      losses: [b, ...].
      weights: one for all, or of the shape of losses or of its first dimensions: [b] for one an
        example.
      scope: of the ops.
    """
    losses = tf.convert_to_tensor(losses)
    return _tf_losses.compute_weighted_loss(losses, _expand_weights(weights, losses), scope)


def absolute_difference(
    predictions: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """The mean of |predictions - labels|; see `compute_weighted_loss`."""
    weights = _expand_weights(weights, predictions)
    return _tf_losses.absolute_difference(labels, predictions, weights, scope)


def mean_squared_error(predictions: Any, labels: Any, weights: Any = 1.0, scope: Any = None) -> Any:
    """The mean of (predictions - labels)²; see `compute_weighted_loss`."""
    weights = _expand_weights(weights, predictions)
    return _tf_losses.mean_squared_error(labels, predictions, weights, scope)


def log_loss(
    predictions: Any, labels: Any, weights: Any = 1.0, epsilon: float = 1e-7, scope: Any = None
) -> Any:
    """The mean log loss; see `compute_weighted_loss` and tf.compat.v1.losses.log_loss."""
    weights = _expand_weights(weights, predictions)
    return _tf_losses.log_loss(labels, predictions, weights, epsilon, scope)


def hinge_loss(logits: Any, labels: Any, scope: Any = None) -> Any:
    """The hinge loss of each, of the shape of logits: no mean, and in no collection.

    Args:
      logits: floats.
      labels: 0 or 1, of the same shape.
      scope: of the ops.
    """
    with v1.name_scope(scope, "hinge_loss", [logits, labels]):
        logits = tf.convert_to_tensor(logits)
        signs = 2 * tf.cast(labels, logits.dtype) - 1
        return tf.nn.relu(1 - signs * logits)


def sigmoid_cross_entropy(
    logits: Any,
    multi_class_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: Any = None,
) -> Any:
    """The mean cross entropy of sigmoids; see tf.compat.v1.losses.sigmoid_cross_entropy."""
    return _tf_losses.sigmoid_cross_entropy(
        multi_class_labels, logits, _expand_weights(weights, logits), label_smoothing, scope
    )


def softmax_cross_entropy(
    logits: Any,
    onehot_labels: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: Any = None,
) -> Any:
    """The mean cross entropy of a softmax; see tf.compat.v1.losses.softmax_cross_entropy."""
    return _tf_losses.softmax_cross_entropy(
        onehot_labels, logits, _squeeze_column(weights), label_smoothing, scope
    )


def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """The same for labels that are numbers of classes, [b] or [b, 1]."""
    labels = _squeeze_column(labels)
    return _tf_losses.sparse_softmax_cross_entropy(labels, logits, _squeeze_column(weights), scope)


def _expand_weights(weights: Any, losses: Any) -> Any:
    """Weights of the first dimensions of losses as weights that are broadcast to all."""
    weights, losses = tf.convert_to_tensor(weights), tf.convert_to_tensor(losses)
    missing = (losses.shape.rank or 0) - (weights.shape.rank or 0)
    if weights.shape.rank and missing > 0:
        return tf.reshape(weights, tf.concat([tf.shape(weights), [1] * missing], 0))
    return weights


def _squeeze_column(values: Any) -> Any:
    """[b, 1] as [b]; others as they are."""
    values = tf.convert_to_tensor(values)
    return tf.squeeze(values, [1]) if values.shape.rank == 2 else values


__getattr__ = missing_names.getattr_for("tf.contrib.losses", __all__)
