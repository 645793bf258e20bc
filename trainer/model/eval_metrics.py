"""The metrics of an evaluation as ops: what each batch updates, and what is read at the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.checkpoints import checkpoints
from trainer.model import spec_validation
from trainer.model.spec import EstimatorSpec

RESERVED = ("loss", checkpoints.GLOBAL_STEP)


@dataclass(frozen=True)
class EvalMetrics:
    """EvalMetrics of the default graph.

    Attributes:
      values: name → tensor, to be read after the last batch.
      update: the op that takes one batch into account.
    """

    values: dict[str, Any]
    update: Any


def build_spec_metrics(spec: EstimatorSpec, features: Any) -> EvalMetrics:
    """The metrics of a model, and its loss, in which each row counts alike.

    Args:
      spec: of an evaluation.
      features: what model_fn got: the first of them says how many rows a batch has.

    Raises:
      InvalidSetting: a metric has a name that evaluate() gives itself.
    """
    return build_eval_metrics(spec.eval_metric_ops or {}, spec.loss, _rows(features))


def build_eval_metrics(metrics: Mapping[str, Any], loss: Any, rows: Any) -> EvalMetrics:
    """The metrics that ops make, and a loss.

    Args:
      metrics: name → (value, update op), or a tf_keras Metric that was updated.
      loss: a mean over rows, or several.
      rows: how many rows each loss is of; None where they all count alike.

    Raises:
      InvalidSetting: a metric has a name that evaluate() gives itself.
    """
    reserved = [name for name in RESERVED if name in metrics]
    if reserved:
        raise InvalidSetting(
            f"the model has a metric named {reserved[0]!r}, which evaluate() adds itself: metric "
            f"names {' and '.join(map(repr, RESERVED))} are reserved. Name yours otherwise."
        )
    named = {**value_update_pairs(metrics), "loss": tf.compat.v1.metrics.mean(loss, weights=rows)}
    values = {name: value for name, (value, _) in named.items()}
    return EvalMetrics(values, tf.group(*(update for _, update in named.values())))


def value_update_pairs(metrics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """EvalMetrics by name, Keras ones among them, each as a pair (value, update op)."""
    return {name: _value_and_update(metric) for name, metric in metrics.items()}


def _rows(features: Any) -> Any:
    """How many rows a batch has; None where nothing tells."""
    tensors = [each for each in tf.nest.flatten(features) if tf.is_tensor(each)]
    if not tensors:
        return None
    first = tensors[0]
    shape = first.dense_shape if isinstance(first, tf.SparseTensor) else tf.shape(first)
    if isinstance(first, tf.RaggedTensor):
        shape = [first.nrows()]
    # A scalar has no first dimension, and counts as one row.
    return tf.cast(tf.reduce_prod(shape[:1]), tf.float32)


def _value_and_update(metric: Any) -> tuple[Any, Any]:
    if not spec_validation.is_keras_metric(metric):
        value, update = metric
        return value, update
    # Keras keeps the variables of a metric out of all collections, so that no session would
    # initialise them.
    local = {each.ref() for each in tf.compat.v1.local_variables()}
    for variable in metric.variables:
        if variable.ref() not in local:
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.LOCAL_VARIABLES, variable)
    return metric.result(), tf.group(*metric.updates)
