"""add_metrics: adds metrics to the metrics that an estimator's evaluation computes."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import user_functions
from trainer.estimator import plain_export
from trainer.model.model_program import expected_argument_names
from trainer.model.spec import ModeKeys, TPUEstimatorSpec, call_on_host

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Any, metric_fn: Callable[..., Mapping[str, Any]]) -> Any:
    """Return an estimator whose evaluations also compute the metrics of `metric_fn`.

    If metric_fn and the model have a metric of the same name, the metric of metric_fn replaces the
    model's. On a TPU, metric_fn runs on the host, like the model's own metric function, and
    receives the concatenated examples of all replicas.

    Args:
      estimator: the estimator to extend; it is not changed. The new estimator shares its
        model_dir and settings.
      metric_fn: takes any of the arguments features, labels, predictions and config by name, and
        returns metric name → (value tensor, update op).

    Returns:
      An estimator of the same class.

    Raises:
      InvalidType: estimator is not an estimator, or metric_fn cannot be called.
      InvalidSetting: metric_fn has other arguments.
    """
    plain_export.check_is_estimator(estimator)
    if not callable(metric_fn):
        raise InvalidType(f"metric_fn is {metric_fn!r}, which cannot be called. Give a function.")
    names = tuple(expected_argument_names(metric_fn))
    unknown = [name for name in names if name not in _ARGUMENTS]
    if unknown:
        raise InvalidSetting(
            f"metric_fn has not expected arguments {', '.join(unknown)}. It can have "
            f"{', '.join(_ARGUMENTS)}."
        )
    config = estimator.config
    return estimator.with_model_fn(
        lambda model_fn: _extended_model_fn(model_fn, metric_fn, names, config)
    )


def _extended_model_fn(
    model_fn: Callable[..., Any],
    metric_fn: Callable[..., Mapping[str, Any]],
    names: tuple[str, ...],
    config: Any,
) -> Callable[..., Any]:
    @user_functions.wraps(model_fn)
    def extended_model_fn(**named: Any) -> Any:
        spec = model_fn(**named)
        if spec.mode != ModeKeys.EVAL:
            return spec
        available = {
            "features": named["features"],
            "labels": named.get("labels"),
            "predictions": spec.predictions,
        }
        passed = {name: available[name] for name in names if name in available}
        constants = {"config": config} if "config" in names else {}
        if "predictions" in passed and spec.predictions is None:
            raise InvalidSetting(
                "metric_fn takes predictions, and model_fn returns none for evaluation. Return "
                "them in its spec."
            )
        if isinstance(spec, TPUEstimatorSpec):
            eval_metrics = combine_metrics(
                spec.eval_metrics, functools.partial(metric_fn, **constants), passed
            )
            return dataclasses.replace(spec, eval_metrics=eval_metrics)
        metrics = {**(spec.eval_metric_ops or {}), **metric_fn(**passed, **constants)}
        return spec._replace(eval_metric_ops=metrics)

    return extended_model_fn


def combine_metrics(
    eval_metrics: Any, metric_fn: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Add a metric function to the eval_metrics of a TPUEstimatorSpec.

    Args:
      eval_metrics: the pair of a spec; None for none.
      metric_fn: takes `arguments` by name, on the host.
    """
    flat_arguments = tf.nest.flatten(dict(arguments), expand_composites=True)
    model_tensors = eval_metrics[1] if eval_metrics else {}
    is_dict = isinstance(model_tensors, Mapping)
    named_tensors = dict(model_tensors) if is_dict else dict(enumerate(model_tensors))
    tensors = {f"model/{name}": tensor for name, tensor in named_tensors.items()}
    tensors |= {f"added/{index}": tensor for index, tensor in enumerate(flat_arguments)}

    def combined_metric_fn(**host_tensors: Any) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        if eval_metrics:
            on_host = {name: host_tensors[f"model/{name}"] for name in named_tensors}
            metrics.update(
                call_on_host((eval_metrics[0], on_host if is_dict else list(on_host.values())))
            )
        flat = [host_tensors[f"added/{index}"] for index in range(len(flat_arguments))]
        nest = tf.nest.pack_sequence_as(dict(arguments), flat, expand_composites=True)
        metrics.update(metric_fn(**nest))
        return metrics

    return combined_metric_fn, tensors
