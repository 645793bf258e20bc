"""add_metrics: an estimator that computes more metrics than its model_fn returns."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.estimator import estimator_type
from trainer.model.spec import ModeKeys, TPUEstimatorSpec, call_on_host

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Any, metric_fn: Callable[..., Mapping[str, Any]]) -> Any:
    """An estimator like the given one, with the metrics of `metric_fn` in its evaluations.

    A metric of the model with the same name is replaced. On a TPU, metric_fn runs on the host as
    the model's own does, and gets the tensors of all replicas, row after row.

    Args:
      estimator: stays as it is; the new one shares its model_dir and settings.
      metric_fn: takes features, labels, predictions and config, those of them it names, and
        returns name → (value, update op). Predictions are those of the spec that model_fn
        returns for evaluation.

    Raises:
      InvalidType: it is no estimator, or no function.
      InvalidSetting: metric_fn has other arguments.
    """
    estimator_type.check_is_estimator(estimator)
    if not callable(metric_fn):
        raise InvalidType(f"metric_fn is {metric_fn!r}, which cannot be called. Give a function.")
    names = tuple(inspect.signature(metric_fn).parameters)
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
    @functools.wraps(model_fn)
    def extended(features: Any, *arguments: Any, **named: Any) -> Any:
        spec = model_fn(features, *arguments, **named)
        if spec.mode != ModeKeys.EVAL:
            return spec
        available = {
            "features": features,
            "labels": named.get("labels", arguments[0] if arguments else None),
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
            pair = _joined(spec.eval_metrics, functools.partial(metric_fn, **constants), passed)
            return dataclasses.replace(spec, eval_metrics=pair)
        metrics = {**(spec.eval_metric_ops or {}), **metric_fn(**passed, **constants)}
        return spec._replace(eval_metric_ops=metrics)

    # A program asks for this, so as not to fill what functools.partial has bound.
    extended.keywords = getattr(model_fn, "keywords", {})  # type: ignore[attr-defined]
    return extended


def _joined(
    pair: Any, metric_fn: Callable[..., Mapping[str, Any]], passed: Mapping[str, Any]
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """An eval_metrics pair that computes those of another pair, and those of metric_fn.

    Tensors travel to the host in one flat dict: nests would not survive the way.
    """
    own = dict(enumerate(tf.nest.flatten(dict(passed), expand_composites=True)))
    structure = dict(passed)
    model_tensors = pair[1] if pair else {}
    is_dict = isinstance(model_tensors, Mapping)
    model_named = dict(model_tensors) if is_dict else dict(enumerate(model_tensors))
    tensors = {f"model/{name}": each for name, each in model_named.items()}
    tensors |= {f"added/{index}": each for index, each in own.items()}

    def both(**given: Any) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        if pair:
            of_model = {name: given[f"model/{name}"] for name in model_named}
            arguments = of_model if is_dict else list(of_model.values())
            metrics.update(call_on_host((pair[0], arguments)))
        flat = [given[f"added/{index}"] for index in own]
        nest = tf.nest.pack_sequence_as(structure, flat, expand_composites=True)
        metrics.update(metric_fn(**nest))
        return metrics

    return both, tensors
