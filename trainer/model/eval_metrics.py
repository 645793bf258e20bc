"""Builds an evaluation's metrics: the op that adds a batch, and the tensors of the results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.checkpoints import checkpoints
from trainer.model.metric_pairs import value_update_pairs
from trainer.model.spec import EstimatorSpec

RESERVED_NAMES = ("loss", checkpoints.GLOBAL_STEP)


@dataclass(frozen=True)
class EvalMetrics:
    """The metrics of an evaluation, in the default graph.

    Attributes:
      values: name → tensor to read after the last batch.
      update: the op that adds one batch to the metrics.
    """

    values: dict[str, Any]
    update: Any


def build_spec_metrics(spec: EstimatorSpec, features: Any) -> EvalMetrics:
    """Build the metrics of an EstimatorSpec, and the mean of its loss over all examples.

    Args:
      spec: the EstimatorSpec of an evaluation.
      features: the features that model_fn received. The first feature determines the number of
        examples of a batch.

    Raises:
      InvalidSetting: a metric is named "loss" or "global_step", which evaluate() adds itself.
    """
    return build_eval_metrics(spec.eval_metric_ops or {}, spec.loss, _rows(features))


def build_eval_metrics(metrics: Mapping[str, Any], loss: Any, rows: Any) -> EvalMetrics:
    """Build the metrics of an evaluation, and the weighted mean of its losses.

    Args:
      metrics: name → metric. A metric is a pair (value, update op), or a tf_keras Metric on which
        model_fn has called update_state.
      loss: float tensor of any shape. Each element is a loss: the mean over some examples.
      rows: the weights of the losses, which are numbers of examples. A tensor of the shape of
        `loss` has one number for each loss; a scalar tensor has one number for all losses. None
        for equal weights.

    Raises:
      InvalidSetting: a metric is named "loss" or "global_step", which evaluate() adds itself.
    """
    reserved = [name for name in RESERVED_NAMES if name in metrics]
    if reserved:
        raise InvalidSetting(
            f"the model has a metric named {reserved[0]!r}, which evaluate() adds itself: metric "
            f"names {' and '.join(map(repr, RESERVED_NAMES))} are reserved. Name yours otherwise."
        )
    named = {**value_update_pairs(metrics), "loss": tf.compat.v1.metrics.mean(loss, weights=rows)}
    values = {name: value for name, (value, _) in named.items()}
    return EvalMetrics(values, tf.group(*tf.nest.flatten([update for _, update in named.values()])))


def _rows(features: Any) -> Any:
    """Return the number of examples in the first feature, float32 []; None without features."""
    tensors = [feature for feature in tf.nest.flatten(features) if tf.is_tensor(feature)]
    if not tensors:
        return None
    first = tensors[0]
    shape = first.dense_shape if isinstance(first, tf.SparseTensor) else tf.shape(first)
    if isinstance(first, tf.RaggedTensor):
        shape = [first.nrows()]
    # Use reduce_prod and not shape[0], because a scalar has no first dimension. The product of no
    # numbers is 1, so a scalar counts as one example.
    return tf.cast(tf.reduce_prod(shape[:1]), tf.float32)
