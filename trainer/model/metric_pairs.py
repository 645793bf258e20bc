"""Turns the metrics of an evaluation into pairs of a value and an update op."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def is_keras_metric(value: Any) -> bool:
    """Return whether a value has the methods of a tf_keras Metric, without importing Keras."""
    return all(hasattr(value, name) for name in ("update_state", "result", "updates"))


def value_update_pairs(metrics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Convert metrics to pairs, as name → (value, update op).

    Args:
      metrics: name → metric: a pair (value, update op), or a tf_keras Metric on which model_fn has
        called update_state.
    """
    return {
        name: _to_pair(metric) if is_keras_metric(metric) else metric
        for name, metric in metrics.items()
    }


def _to_pair(metric: Any) -> tuple[Any, Any]:
    keys = tf.compat.v1.GraphKeys
    # A session initialises local variables.
    for collection in (keys.LOCAL_VARIABLES, keys.METRIC_VARIABLES):
        known = {variable.ref() for variable in tf.compat.v1.get_collection(collection)}
        for variable in metric.variables:
            if variable.ref() not in known:
                tf.compat.v1.add_to_collection(collection, variable)
    updates = metric.updates
    return metric.result(), updates[0] if len(updates) == 1 else tf.group(*updates)
