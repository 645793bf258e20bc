"""Builds an evaluation's metrics: the op that adds a batch, and the tensors of the results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.checkpoints import checkpoints
from trainer.inputs.nests import flatten_parts
from trainer.model.spec import EstimatorSpec
from trainer.model.spec_validation import value_update_pairs

RESERVED_NAMES = ("loss", checkpoints.GLOBAL_STEP)


@dataclass(frozen=True)
class EvalMetrics:
    """The metrics of an evaluation, in the default graph.

    Attributes:
      values: name → tensor to read after the last batch.
    """

    values: dict[str, Any]
    update: Any


def build_spec_metrics(spec: EstimatorSpec, features: Any, labels: Any) -> EvalMetrics:
    """Build the metrics of an EstimatorSpec, and the mean of its loss.

    If in each batch all tensors of features and labels have the same first dimension, this is the
    number of the batch's rows, and each row counts once.

    Args:
      labels: the labels that model_fn received; None if there are none.

    Raises:
      InvalidSetting: a metric is named "loss" or "global_step", which evaluate() adds itself.
    """
    parts = flatten_parts((features, labels))
    # A scalar has no first dimension, and belongs to all rows.
    sizes = tf.concat([[], *(_shape(part)[:1] for part in parts if tf.is_tensor(part))], 0)
    rows = tf.reduce_prod(sizes[:1])
    by_row, update_by_row = tf.compat.v1.metrics.mean(spec.loss, weights=rows)
    by_batch, update_by_batch = tf.compat.v1.metrics.mean(spec.loss)
    agreeing, update_agreeing = tf.compat.v1.metrics.mean(tf.reduce_all(tf.equal(sizes, rows)))
    value = tf.where(tf.equal(agreeing, 1.0), by_row, by_batch)
    update = tf.group(update_by_row, update_by_batch, update_agreeing)
    return build_eval_metrics(spec.eval_metric_ops or {}, (value, update))


def build_eval_metrics(metrics: Mapping[str, Any], loss: tuple[Any, Any]) -> EvalMetrics:
    """Build the metrics of an evaluation, and its loss.

    Args:
      metrics: name → metric. A metric is a pair (value, update op), or a tf_keras Metric on which
        model_fn has called update_state.

    Raises:
      InvalidSetting: a metric is named "loss" or "global_step", which evaluate() adds itself.
    """
    reserved = [name for name in RESERVED_NAMES if name in metrics]
    if reserved:
        raise InvalidSetting(
            f"the model has a metric named {reserved[0]!r}, which evaluate() adds itself: metric "
            f"names {' and '.join(map(repr, RESERVED_NAMES))} are reserved. Name yours otherwise."
        )
    named = {**value_update_pairs(metrics), "loss": loss}
    values = {name: value for name, (value, _) in named.items()}
    return EvalMetrics(values, tf.group(*tf.nest.flatten([update for _, update in named.values()])))


def _shape(tensor: Any) -> Any:
    """Return the dense shape of a tensor, a SparseTensor or a RaggedTensor, float32."""
    if isinstance(tensor, tf.RaggedTensor):
        shape = tensor.nrows()[tf.newaxis]
    else:
        shape = tensor.dense_shape if isinstance(tensor, tf.SparseTensor) else tf.shape(tensor)
    return tf.cast(shape, tf.float32)
