"""What a model that was made without eager execution is compiled with."""

from collections.abc import Mapping, Sequence
from typing import Any

from tf_keras.src.metrics import base_metric


def build_compile_args(model: Any) -> dict[str, Any]:
    """Arguments for compile() of its twin, but for the optimizer.

    Where the model knows its outputs, losses and metrics are those that it has found for each of
    them, under its own names: TensorFlow 1 calls accuracy acc.
    """
    if not model._is_compiled:
        return {
            "loss": model.loss,
            "loss_weights": model.loss_weights,
            "metrics": model._compile_metrics,
            "weighted_metrics": model._compile_weighted_metrics,
        }
    endpoints = model._training_endpoints
    return {
        "loss": _for_outputs(model, model.loss_functions),
        "loss_weights": _for_outputs(model, [each.loss_weight for each in endpoints]),
        "metrics": _for_outputs(model, _metrics(model._per_output_metrics)),
        "weighted_metrics": _for_outputs(model, _metrics(model._per_output_weighted_metrics)),
        # NameMaps are as they are to be.
        "from_serialized": True,
    }


def _for_outputs(model: Any, values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    outputs = getattr(model, "_nested_outputs", None)
    if isinstance(outputs, Mapping):
        # As TensorFlow flattens a dict.
        return dict(zip(sorted(outputs), values, strict=True))
    return list(values)


def _metrics(of_outputs: Sequence[Mapping[str, Any] | None]) -> list[list[Any]]:
    return [
        [_metric(name, each) for name, each in (found or {}).items()] or [None]
        for found in of_outputs
    ]


def _metric(name: str, metric: Any) -> Any:
    if type(metric) is base_metric.MeanMetricWrapper:
        # Its own configuration has names in the place of functions.
        return base_metric.MeanMetricWrapper(
            metric._fn, name=name, dtype=metric.dtype, **metric._fn_kwargs
        )
    made = type(metric).from_config(metric.get_config())
    made._name = name
    return made
