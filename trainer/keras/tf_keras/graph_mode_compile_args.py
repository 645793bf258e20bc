"""The arguments of compile() of a tf_keras model that was built without eager execution."""

from collections.abc import Mapping, Sequence
from typing import Any

import tf_keras

from trainer.keras_internals import get_private_attribute


def build_compile_args(model: Any) -> dict[str, Any]:
    """Build the arguments, without the optimizer, for compile() of the eager clone of a model.

    If the model's outputs are known, the losses and metrics are those that Keras has assigned to
    each output, with the names that Keras chose: under TensorFlow 1, "acc" for the metric accuracy.

    Returns:
      Argument name → value.
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
        # `from_serialized` tells compile() that the names of the metrics contain the names of the
        # outputs already, so that compile() does not add them again.
        "from_serialized": True,
    }


def _assign_to_outputs(model: Any, values: Sequence[Any]) -> Any:
    """Arrange one value per output in the form that compile() accepts: a value, list or dict."""
    if len(values) == 1:
        return values[0]
    outputs = getattr(model, "_nested_outputs", None)
    if isinstance(outputs, Mapping):
        # The values are in the order of the sorted output names, because tf.nest flattens a dict in
        # the order of its sorted keys.
        return dict(zip(sorted(outputs), values, strict=True))
    return list(values)


def _copy_metrics(metrics_of_outputs: Sequence[Mapping[str, Any] | None]) -> list[list[Any]]:
    """Copy the metrics of each output, without state; [None] for an output without metrics."""
    return [
        [_copy_metric(name, metric) for name, metric in (metrics or {}).items()] or [None]
        for metrics in metrics_of_outputs
    ]


def _copy_metric(name: str, metric: Any) -> Any:
    """Create a metric with another metric's settings and a given name, without its state."""
    if type(metric) is tf_keras.metrics.MeanMetricWrapper:
        # Copy the function that a MeanMetricWrapper calls, because get_config returns only the name
        # of the function.
        return tf_keras.metrics.MeanMetricWrapper(
            get_private_attribute(metric, "_fn"),
            name=name,
            dtype=metric.dtype,
            **get_private_attribute(metric, "_fn_kwargs"),
        )
    copy = type(metric).from_config(metric.get_config())
    copy._name = name
    return copy
