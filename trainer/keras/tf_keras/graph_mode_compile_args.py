"""Finds the arguments of compile() of a tf_keras model that was built without eager execution.

The clone of the model, which an estimator uses, is compiled with the same arguments.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras

from trainer.keras_internals import (
    find_private_attribute,
    get_private_attribute,
    set_private_attribute,
)


def build_compile_args(model: Any) -> dict[str, Any]:
    """Return the arguments, except the optimizer, with which to compile the eager clone of a model.

    If the model's outputs are known, the result contains the losses and metrics that Keras has
    assigned to each output.
    """
    if not get_private_attribute(model, "_is_compiled"):
        return {
            "loss": model.loss,
            "loss_weights": model.loss_weights,
            "metrics": get_private_attribute(model, "_compile_metrics"),
            "weighted_metrics": get_private_attribute(model, "_compile_weighted_metrics"),
        }
    endpoints = get_private_attribute(model, "_training_endpoints")
    metrics = get_private_attribute(model, "_per_output_metrics")
    weighted_metrics = get_private_attribute(model, "_per_output_weighted_metrics")
    return {
        "loss": _assign_to_outputs(model, model.loss_functions),
        "loss_weights": _assign_to_outputs(model, [endpoint.loss_weight for endpoint in endpoints]),
        "metrics": _assign_to_outputs(model, _copy_metrics(metrics)),
        "weighted_metrics": _assign_to_outputs(model, _copy_metrics(weighted_metrics)),
        # With `from_serialized`, compile() does not add the names of the outputs to the names of
        # the metrics. The names of these metrics contain the names of the outputs already.
        "from_serialized": True,
    }


def _assign_to_outputs(model: Any, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    outputs = find_private_attribute(model, "_nested_outputs")
    if isinstance(outputs, Mapping):
        # Sort the output names, because tf.nest has flattened the dict of outputs in the order of
        # its sorted keys, and the values are in the same order.
        return dict(zip(sorted(outputs), values, strict=True))
    return list(values)


def _copy_metrics(metrics_of_outputs: Sequence[Mapping[str, Any] | None]) -> list[list[Any]]:
    return [
        [_copy_metric(name, metric) for name, metric in (metrics or {}).items()] or [None]
        for metrics in metrics_of_outputs
    ]


def _copy_metric(name: str, metric: Any) -> Any:
    """Copy a metric, without its state, under another name."""
    if type(metric) is tf_keras.metrics.MeanMetricWrapper:
        # Do not use get_config for a MeanMetricWrapper: it returns only the name of the function
        # that the metric calls.
        return tf_keras.metrics.MeanMetricWrapper(
            get_private_attribute(metric, "_fn"),
            name=name,
            dtype=metric.dtype,
            **get_private_attribute(metric, "_fn_kwargs"),
        )
    copy = type(metric).from_config(metric.get_config())
    set_private_attribute(copy, "_name", name)
    return copy
