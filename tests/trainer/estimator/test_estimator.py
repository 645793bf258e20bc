import argparse
import collections
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import CheckpointNotFound, InvalidSetting, InvalidType

v1 = tf.compat.v1


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Build the slope model for an Estimator."""
    return programs.slope_model_fn(features, labels, mode, params).as_estimator_spec()


def estimator(model_dir: Path, **options: Any) -> trainer.Estimator:
    arguments = {"model_fn": model_fn, "params": {"rate": 0.5}, **options}
    return trainer.Estimator(model_dir=str(model_dir), **arguments)


def test_an_estimator_trains_evaluates_and_predicts(tmp_path: Path) -> None:
    trained = estimator(tmp_path).train(programs.ones(), steps=2)
    assert trained.evaluate(programs.ones(), steps=1) == {
        "mean_y": 0.75,
        "loss": 0.25**2 / 2,
        "global_step": 2,
    }
    assert next(trained.predict(programs.ones()))["y"] == 0.75


def test_variables_of_the_newest_checkpoint_can_be_read(tmp_path: Path) -> None:
    trained = estimator(tmp_path).train(programs.ones(), steps=1)
    assert sorted(trained.get_variable_names()) == ["global_step", "w"]
    assert trained.get_variable_value("w") == 0.5
    assert trained.latest_checkpoint() == f"{tmp_path}/model.ckpt-1"


def test_without_a_checkpoint_there_are_no_variables(tmp_path: Path) -> None:
    # Programs that wait for a first checkpoint catch this type of error.
    with pytest.raises(ValueError, match="Couldn't find trained model") as refused:
        estimator(tmp_path).get_variable_names()
    assert isinstance(refused.value, CheckpointNotFound)


def test_each_evaluation_has_its_directory(tmp_path: Path) -> None:
    assert estimator(tmp_path).eval_dir() == f"{tmp_path}/eval"
    assert estimator(tmp_path).eval_dir("test") == f"{tmp_path}/eval_test"


def test_config_and_params_are_copies(tmp_path: Path) -> None:
    model = estimator(tmp_path, params={"rate": 0.5, "layers": [1]})
    model.params["layers"].append(2)
    assert model.params["layers"] == [1]
    assert model.config is not model.config
    assert model.config.model_dir == str(tmp_path)


def test_params_stay_of_their_type(tmp_path: Path) -> None:
    model = estimator(tmp_path, params=collections.defaultdict(int, rate=0.5))
    assert model.params["batch_size"] == 0


@pytest.mark.parametrize("name", ["model_fn", "_call_model_fn"])
def test_model_fn_is_bound_to_its_params(tmp_path: Path, name: str) -> None:
    model = estimator(tmp_path)
    with tf.Graph().as_default():
        spec = getattr(model, name)({"x": tf.ones([2, 1])}, None, "infer", model.config)
    assert list(spec.predictions) == ["y"]


def test_params_are_just_those_that_were_given(tmp_path: Path) -> None:
    all_params: list[Any] = []

    def watching(features: Any, labels: Any, mode: str, params: Any) -> Any:
        all_params.append(params)
        return model_fn(features, labels, mode, params)

    model = estimator(tmp_path, model_fn=watching, params={"rate": 0.5, "batch_size": 7})
    model.train(programs.ones(), steps=1)
    assert all_params == [{"rate": 0.5, "batch_size": 7}]


def test_a_tpu_spec_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="returned TPUEstimatorSpec. Return an EstimatorSpec"):
        estimator(tmp_path, model_fn=programs.slope_model_fn).train(programs.ones(), steps=1)


def test_a_subclass_cannot_override_members(tmp_path: Path) -> None:
    class Other(trainer.Estimator):
        def train(self, *arguments: Any, **named: Any) -> Any:
            return None

    class EstimatorWithMethod(trainer.Estimator):
        def train_twice(self) -> None: ...

    with pytest.raises(InvalidSetting, match="Other overrides train"):
        Other(model_fn, str(tmp_path), params={"rate": 0.5})
    assert EstimatorWithMethod(model_fn, str(tmp_path), params={"rate": 0.5})


def test_arguments_of_wrong_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="model_fn must be provided"):
        estimator(tmp_path, model_fn=None)
    with pytest.raises(InvalidType, match="config is 3"):
        estimator(tmp_path, config=3)
    with pytest.raises(InvalidType, match="params is 3"):
        programs.estimator(tmp_path, params=3)
    model = estimator(tmp_path)
    with pytest.raises(InvalidType, match=r"train\(\) hooks holds 3"):
        model.train(programs.ones(), steps=1, hooks=[3])
    with pytest.raises(InvalidType, match="saving_listeners holds 3"):
        model.train(programs.ones(), steps=1, saving_listeners=[3])
    with pytest.raises(InvalidType, match=r"evaluate\(\) hooks holds 3"):
        model.evaluate(programs.ones(), steps=1, hooks=[3])
    with pytest.raises(InvalidType, match=r"predict\(\) hooks holds 3"):
        model.predict(programs.ones(), hooks=[3])


def test_hooks_and_listeners_may_come_from_iterators(tmp_path: Path) -> None:
    class Listener(tf.compat.v1.train.CheckpointSaverListener):
        saved_steps: list[int] = []

        def after_save(self, session: Any, global_step_value: int) -> None:
            self.saved_steps.append(int(global_step_value))

    hook, evaluation_hook, prediction_hook = Runs(), Runs(), Runs()
    model = estimator(tmp_path)
    hooks: Any = filter(None, [hook, None])
    listeners: Any = (listener() for listener in [Listener])
    model.train(programs.ones(), hooks, steps=2, saving_listeners=listeners)
    assert (hook.count, Listener.saved_steps) == (2, [0, 2])
    model.evaluate(programs.ones(), steps=1, hooks=iter([evaluation_hook]))  # type: ignore[arg-type]
    next(model.predict(programs.ones(), hooks=iter([prediction_hook])))  # type: ignore[arg-type]
    assert (evaluation_hook.count, prediction_hook.count) == (1, 1)


def test_a_saver_hook_of_the_models_own_takes_the_place_of_ours(tmp_path: Path) -> None:
    saved_steps: list[int] = []

    class Listener(tf.compat.v1.train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            saved_steps.append(global_step_value)

    def with_hook(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = model_fn(features, labels, mode, params)
        hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=2, save_graph_def=False)
        return spec._replace(training_chief_hooks=[hook])

    config = trainer.RunConfig(save_checkpoints_steps=1000)
    model = estimator(tmp_path, model_fn=with_hook, config=config)
    model.train(programs.ones(), steps=4, saving_listeners=[Listener()])
    assert saved_steps == [0, 2, 4]


class Runs(tf.compat.v1.train.SessionRunHook):
    """Counts the calls of session.run."""

    count = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count a call of session.run."""
        self.count += 1


@pytest.mark.parametrize(
    ("config", "runs"),
    [(trainer.RunConfig(), 4), (trainer.RunConfig(trainer.TPUConfig(iterations_per_loop=2)), 2)],
)
def test_each_step_is_a_run_unless_a_loop_is_asked_for(
    tmp_path: Path, config: trainer.RunConfig, runs: int
) -> None:
    hook = Runs()
    estimator(tmp_path, config=config).train(programs.ones(), steps=4, hooks=[hook])
    assert hook.count == runs


def test_a_float_is_as_many_steps_as_it_takes_to_reach_it(tmp_path: Path) -> None:
    steps: Any = 1.5
    trained = estimator(tmp_path).train(programs.ones(), steps=steps)
    assert trained.get_variable_value("global_step") == 2


def test_arrays_are_as_good_as_tensors(tmp_path: Path) -> None:
    one = np.ones([2, 1], np.float32)
    trained = estimator(tmp_path).train(lambda: ({"x": one}, one), steps=1)
    assert trained.get_variable_value("w") == 0.5


def test_params_can_be_any_object(tmp_path: Path) -> None:
    def with_object(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return model_fn(features, labels, mode, vars(params))

    model = estimator(tmp_path, model_fn=with_object, params=argparse.Namespace(rate=0.5))
    assert model.train(programs.ones(), steps=1).get_variable_value("w") == 0.5


def test_a_nan_loss_says_what_to_do_off_the_tpu(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, rate=float("nan"), iterations_per_loop=1)
    with pytest.raises(v1.train.NanLossDuringTrainingError, match=r"NaN loss.*Lower the learning"):
        estimator.train(programs.ones(), max_steps=4)
