import functools
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.inputs import input_pipeline

v1 = tf.compat.v1


def test_an_input_fn_gets_the_global_batch_size_of_its_mode(tmp_path: Path) -> None:
    batch_sizes: list[int] = []

    def input_fn(params: dict[str, Any]) -> Any:
        batch_sizes.append(params["batch_size"])
        return programs.ones(batches=1)()

    estimator = programs.estimator(
        tmp_path, train_batch_size=8, eval_batch_size=6, predict_batch_size=4
    )
    estimator.train(input_fn, max_steps=1)
    estimator.evaluate(input_fn)
    list(estimator.predict(input_fn))
    assert batch_sizes == [8, 6, 4]


def test_a_batch_size_that_nobody_gave_is_asked_for_by_its_name(tmp_path: Path) -> None:
    def input_fn(params: dict[str, Any]) -> Any:
        return programs.ones(batch_size=params["batch_size"])()

    with pytest.raises(InvalidSetting, match="Pass train_batch_size to TPUEstimator"):
        programs.estimator(tmp_path).train(input_fn, max_steps=1)


def test_a_key_error_of_input_fn_is_not_replaced(tmp_path: Path) -> None:
    def input_fn(params: dict[str, Any]) -> Any:
        return params["rte"]

    with pytest.raises(KeyError, match="rte"):
        programs.estimator(tmp_path).train(input_fn, max_steps=1)


def test_a_dataset_from_outside_of_input_fn_is_refused(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        dataset = programs.ones()()
    with pytest.raises(InvalidSetting, match="Create the Dataset inside input_fn"):
        programs.estimator(tmp_path).train(lambda: dataset, max_steps=1)


def test_a_model_fn_under_tf_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"is a tf\.function.* Leave out @tf\.function"):
        programs.estimator(tmp_path, model_fn=tf.function(programs.slope_model_fn))


@pytest.mark.parametrize("key", ["batch_size", "context"])
def test_reserved_params_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidSetting, match="are reserved keys"):
        programs.estimator(tmp_path, params={key: 1})


def test_a_model_fn_is_checked_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="has no argument 'features'"):
        programs.estimator(tmp_path, model_fn=lambda x: None)
    with pytest.raises(InvalidSetting, match="has arguments extra that get no value"):
        programs.estimator(tmp_path, model_fn=lambda features, extra: None)
    with pytest.raises(InvalidSetting, match="cannot be called"):
        programs.estimator(tmp_path, model_fn=3)


def test_arguments_bound_by_partial_are_not_filled_again(tmp_path: Path) -> None:
    model_fn = functools.partial(programs.slope_model_fn, params={"rate": 0.25})
    programs.estimator(tmp_path, model_fn=model_fn).train(programs.ones(), max_steps=1)
    assert programs.variable(tmp_path, "w") == 0.25


def _by_keyword(*, mode: str, labels: Any, params: Any, features: Any) -> Any:
    return programs.slope_model_fn(features, labels, mode, params)


def _in_another_order(mode: str, features: Any, labels: Any, params: Any) -> Any:
    return programs.slope_model_fn(features, labels, mode, params)


@pytest.mark.slow
@pytest.mark.parametrize("model_fn", [_by_keyword, _in_another_order])
@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_model_fn_gets_its_arguments_by_name(
    tmp_path: Path, model_fn: Any, use_tpu: bool
) -> None:
    sizes = {"train_batch_size": 2, "eval_batch_size": 2}
    estimator = programs.estimator(tmp_path, model_fn=model_fn, use_tpu=use_tpu, **sizes)
    added = trainer.add_metrics(estimator, lambda features: {"x": v1.metrics.mean(features["x"])})
    with tpuserve.emulated_tpu(cores=1, compiled=False):
        estimator.train(programs.ones(), max_steps=1)
        assert added.evaluate(programs.ones(), steps=1)["x"] == 1.0
    assert programs.variable(tmp_path, "w") == 0.5


def test_a_converted_model_fn_gets_its_arguments_by_name(tmp_path: Path) -> None:
    def model_fn(*, mode: str, labels: Any, features: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, {"rate": 0.5})
        return spec.as_estimator_spec()

    estimator = trainer.to_tpu_estimator(
        trainer.Estimator(model_fn, str(tmp_path)), train_batch_size=2, use_tpu=False
    )
    estimator.train(programs.ones(), max_steps=1)
    assert programs.variable(tmp_path, "w") == 0.5


def test_what_model_fn_returns_must_be_a_spec_of_the_mode(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path / "a", model_fn=lambda features, labels: None)
    with pytest.raises(InvalidSetting, match="returned NoneType. Return a TPUEstimatorSpec"):
        estimator.train(programs.ones(), max_steps=1)
    wrong = trainer.TPUEstimatorSpec("infer", predictions=tf.constant(1))
    estimator = programs.estimator(tmp_path / "b", model_fn=lambda features, labels: wrong)
    with pytest.raises(InvalidSetting, match="of mode 'infer' when called for 'train'"):
        estimator.train(programs.ones(), max_steps=1)


def test_labels_that_model_fn_does_not_take_are_an_error(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, model_fn=lambda features: None)
    with pytest.raises(InvalidSetting, match="has no argument 'labels'"):
        estimator.train(programs.ones(), max_steps=1)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_prediction_ignores_labels_that_model_fn_does_not_take(
    tmp_path: Path, use_tpu: bool
) -> None:
    def model_fn(features: Any, mode: str, params: Any) -> Any:
        return programs.slope_model_fn(features, None, mode, params)

    sizes = {"train_batch_size": 2, "predict_batch_size": 2}
    estimator = programs.estimator(tmp_path, model_fn=model_fn, use_tpu=use_tpu, **sizes)
    with tpuserve.emulated_tpu(cores=1, compiled=False):
        rows = list(estimator.predict(programs.ones(batches=1)))
    assert [row["y"].item() for row in rows] == [0.0, 0.0]


def test_a_model_cannot_change_the_params_of_the_next_call(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        params["rate"] = 100.0
        return spec

    estimator = programs.estimator(tmp_path, model_fn=model_fn)
    estimator.train(programs.ones(), max_steps=1).train(programs.ones(), max_steps=2)
    assert programs.variable(tmp_path, "w") == 0.75


def test_two_model_directories_must_be_the_same() -> None:
    config = trainer.RunConfig(model_dir="/m")
    with pytest.raises(InvalidSetting, match="model_dir is '/n', and the config's is '/m'"):
        trainer.TPUEstimator(programs.slope_model_fn, "/n", config, use_tpu=False)


@pytest.mark.parametrize("returned", [None, print, {"x": object()}])
def test_an_input_fn_that_returns_no_tensors_is_refused(returned: object) -> None:
    with pytest.raises(InvalidSetting, match="Return a tf.data.Dataset"):
        input_pipeline.build_inputs(returned)


@pytest.mark.parametrize(
    "batch", [({"x": 42.0, "y": [43.0]}, 44.0), ([[1.0], [2.0]], [1, 2]), ({}, None)]
)
def test_python_values_reach_model_fn_as_they_are(tmp_path: Path, batch: Any) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        assert (features, labels) == batch
        train_op = v1.assign_add(v1.train.get_global_step(), 1)
        return trainer.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=train_op)

    trainer.Estimator(model_fn, str(tmp_path)).train(lambda: batch, steps=1)


_SIZES = ("train_batch_size", "eval_batch_size", "predict_batch_size")


@pytest.mark.slow
@pytest.mark.parametrize("use_tpu", [False, True])
def test_features_may_have_integer_keys(tmp_path: Path, use_tpu: bool) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return programs.slope_model_fn({"x": features[7]}, labels, mode, params)

    def input_fn() -> Any:
        return {7: tf.ones([2, 1]), 3: tf.zeros([2, 1])}, tf.ones([2, 1])

    estimator = programs.estimator(
        tmp_path, model_fn=model_fn, use_tpu=use_tpu, **dict.fromkeys(_SIZES, 2)
    )
    with tpuserve.emulated_tpu(cores=1, compiled=False):
        estimator.train(input_fn, max_steps=1)
        assert estimator.evaluate(input_fn, steps=1)["mean_y"] == 0.5
        dataset = tf.data.Dataset.from_tensors
        (*_, last) = estimator.predict(lambda: dataset({7: tf.ones([2, 1]), 3: tf.zeros([2, 1])}))
    assert last["y"] == 0.5


def test_an_input_of_three_parts_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(InvalidSetting, match="elements of 3 parts"):
        input_pipeline.build_inputs(tf.data.Dataset.from_tensors((1, 2, 3)))


def test_params_that_model_fn_does_not_take_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="has no argument 'params', and params are given"):
        programs.estimator(tmp_path, model_fn=lambda features: None, params={"rate": 1.0})


class HParams:
    """Hyperparameters with the interface of tf.contrib.training.HParams."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def add_hparam(self, name: str, value: Any) -> None:
        assert name not in self
        self.__dict__[name] = value

    def set_hparam(self, name: str, value: Any) -> None:
        assert name in self
        self.__dict__[name] = value


def test_hparams_stay_hparams_and_get_what_the_run_adds(tmp_path: Path) -> None:
    all_params: list[Any] = []

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        all_params.append(params)
        return programs.slope_model_fn(features, labels, mode, {"rate": params.rate})

    hparams = HParams(rate=0.5, use_tpu=True)
    estimator = programs.estimator(tmp_path, model_fn=model_fn, params=hparams, train_batch_size=2)
    estimator.train(programs.ones(), max_steps=1)
    assert (all_params[0].batch_size, all_params[0].use_tpu) == (2, False)
    assert "batch_size" not in hparams
    with pytest.raises(InvalidSetting, match="are reserved keys"):
        programs.estimator(tmp_path, model_fn=model_fn, params=HParams(context=1))
