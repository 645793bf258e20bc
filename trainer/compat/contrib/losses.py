"""tf.contrib.losses: TensorFlow's losses with tf.contrib's order of arguments.

In these functions the predictions or logits precede the labels, whereas in tf.compat.v1.losses the
labels come first. Each function except `hinge_loss` adds its loss to tf.GraphKeys.LOSSES.
"""

from typing import Any

import tensorflow as tf
from tensorflow.compat.v1 import losses as _tf_losses
from tensorflow.compat.v1.losses import (
    add_loss,
    get_losses,
    get_regularization_losses,
    get_total_loss,
)

from trainer.compat import contrib_missing_names

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
    """Return the sum of losses * weights, divided by the number of weights that are not 0.

    Args:
      weights: a scalar, a tensor of the shape of losses, or a tensor of their first dimensions,
        such as [b] for one weight per example.
    """
    losses = tf.convert_to_tensor(losses)
    return _tf_losses.compute_weighted_loss(losses, _expand_weights(weights, losses), scope)


def absolute_difference(
    predictions: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Return the weighted mean of |predictions - labels|, a float scalar.

    `compute_weighted_loss` documents the weights, and how they determine the mean.
    """
    weights = _expand_weights(weights, predictions)
    return _tf_losses.absolute_difference(labels, predictions, weights, scope)


def mean_squared_error(predictions: Any, labels: Any, weights: Any = 1.0, scope: Any = None) -> Any:
    """Return the weighted mean of (predictions - labels)², a float scalar.

    `compute_weighted_loss` documents the weights, and how they determine the mean.
    """
    weights = _expand_weights(weights, predictions)
    return _tf_losses.mean_squared_error(labels, predictions, weights, scope)


def log_loss(
    predictions: Any, labels: Any, weights: Any = 1.0, epsilon: float = 1e-7, scope: Any = None
) -> Any:
    """Return the weighted mean log loss, a float scalar.

    The arguments are those of tf.compat.v1.losses.log_loss, in another order.
    """
    weights = _expand_weights(weights, predictions)
    return _tf_losses.log_loss(labels, predictions, weights, epsilon, scope)


def hinge_loss(logits: Any, labels: Any, scope: Any = None) -> Any:
    """Return the hinge loss of each element, without averaging it or adding it to a collection.

    Args:
      labels: 0 or 1, of the shape of logits.
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
    """Return the weighted mean sigmoid cross entropy, a float scalar.

    The arguments are those of tf.compat.v1.losses.sigmoid_cross_entropy, in another order.
    """
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
    """Return the weighted mean softmax cross entropy, a float scalar.

    The arguments are those of tf.compat.v1.losses.softmax_cross_entropy, in another order.
    """
    return _tf_losses.softmax_cross_entropy(
        onehot_labels, logits, _squeeze_column(weights), label_smoothing, scope
    )


def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: Any = None
) -> Any:
    """Return the weighted mean cross entropy of a softmax, for labels that are class ids."""
    labels = _squeeze_column(labels)
    return _tf_losses.sparse_softmax_cross_entropy(labels, logits, _squeeze_column(weights), scope)


def _expand_weights(weights: Any, losses: Any) -> Any:
    """Append dimensions of size 1 to weights until they have the rank of losses."""
    weights, losses = tf.convert_to_tensor(weights), tf.convert_to_tensor(losses)
    missing = (losses.shape.rank or 0) - (weights.shape.rank or 0)
    if weights.shape.rank and missing > 0:
        return tf.reshape(weights, tf.concat([tf.shape(weights), [1] * missing], 0))
    return weights


def _squeeze_column(values: Any) -> Any:
    """Reshape [b, 1] to [b]; return tensors of other ranks unchanged."""
    values = tf.convert_to_tensor(values)
    return tf.squeeze(values, [1]) if values.shape.rank == 2 else values


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.losses", __all__)
