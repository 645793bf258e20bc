import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.estimator.add_metrics import add_metrics

v1 = tf.compat.v1


def predicting_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Build the slope model; its evaluation spec has predictions, and a dict of metric tensors."""
    spec = programs.slope_model_fn(features, labels, mode, params)
    if mode != trainer.ModeKeys.EVAL:
        return spec
    metric_fn, (y, _) = spec.eval_metrics
    metrics = (lambda prediction: metric_fn(prediction, None)), {"prediction": y}
    return dataclasses.replace(spec, predictions={"y": y}, eval_metrics=metrics)


def train_and_evaluate(estimator: Any) -> dict[str, Any]:
    return estimator.train(programs.ones(), max_steps=1).evaluate(programs.ones(), steps=1)


@pytest.mark.parametrize("model_fn", [programs.slope_model_fn, predicting_model_fn])
def test_metrics_join_those_of_the_model(model_fn: Any, tmp_path: Path) -> None:
    def metric_fn(labels: Any, features: Any, config: Any) -> Any:
        assert config.model_dir == str(tmp_path)
        return {"double": v1.metrics.mean(labels + features["x"])}

    estimator = add_metrics(programs.estimator(tmp_path, model_fn=model_fn), metric_fn)
    assert train_and_evaluate(estimator) == {
        "mean_y": 0.5,
        "double": 2.0,
        "loss": 0.125,
        "global_step": 1,
    }


def test_predictions_of_evaluation_can_be_used(tmp_path: Path) -> None:
    def metric_fn(predictions: Any) -> Any:
        return {"mean_y": v1.metrics.mean(predictions["y"] * 10.0)}

    estimator = programs.estimator(tmp_path, model_fn=predicting_model_fn)
    assert train_and_evaluate(add_metrics(estimator, metric_fn))["mean_y"] == 5.0


def test_the_given_estimator_stays_as_it_is(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path)
    add_metrics(estimator, lambda labels: {"mean_label": v1.metrics.mean(labels)})
    assert "mean_label" not in train_and_evaluate(estimator)


def test_metrics_can_be_added_twice_and_to_a_bound_model_fn(tmp_path: Path) -> None:
    bound = functools.partial(programs.slope_model_fn, params={"rate": 0.5})
    estimator = programs.estimator(tmp_path, model_fn=bound)
    once = add_metrics(estimator, lambda labels: {"a": v1.metrics.mean(labels)})
    twice = add_metrics(once, lambda labels: {"b": v1.metrics.mean(labels * 2.0)})
    results = train_and_evaluate(twice)
    assert (results["mean_y"], results["a"], results["b"]) == (0.5, 1.0, 2.0)


def test_a_metric_function_can_have_bound_arguments_and_settings(tmp_path: Path) -> None:
    def metric_fn(factor: float, labels: Any, features: Any, *, more: float = 1.0) -> Any:
        return {"sum": v1.metrics.mean(factor * labels + features["x"] + more)}

    def any_others(labels: Any, **others: Any) -> Any:
        return {"labels": v1.metrics.mean(labels), "others": v1.metrics.mean(len(others))}

    estimator = programs.estimator(tmp_path)
    results = train_and_evaluate(
        add_metrics(add_metrics(estimator, functools.partial(metric_fn, factor=3.0)), any_others)
    )
    assert (results["sum"], results["labels"], results["others"]) == (5.0, 1.0, 0.0)


def test_predictions_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    estimator = add_metrics(programs.estimator(tmp_path), lambda predictions: {})
    with pytest.raises(InvalidSetting, match="metric_fn takes predictions, and model_fn returns"):
        train_and_evaluate(estimator)


def test_unknown_arguments_are_refused(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path)
    with pytest.raises(ValueError, match="not expected arguments mode"):
        add_metrics(estimator, lambda features, mode: {})
    with pytest.raises(InvalidType, match="estimator must have type"):
        add_metrics(object(), lambda features: {})


def test_metrics_are_added_to_an_estimator_with_metric_ops(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return predicting_model_fn(features, labels, mode, params).as_estimator_spec()

    config = trainer.RunConfig(model_dir=str(tmp_path))
    estimator = trainer.Estimator(model_fn, config=config, params={"rate": 0.5})
    added = add_metrics(
        estimator, lambda labels, predictions: {"sum": v1.metrics.mean(labels + predictions["y"])}
    )
    results = train_and_evaluate(added)
    assert (results["mean_y"], results["sum"]) == (0.5, 1.5)
