import inspect
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting, TpuNotFound


def test_arguments_come_in_the_order_that_programs_know() -> None:
    names = list(inspect.signature(trainer.TPUEstimator.__init__).parameters)[1:]
    first = "model_fn model_dir config params use_tpu train_batch_size eval_batch_size"
    then = "predict_batch_size batch_axis eval_on_tpu export_to_tpu export_to_cpu warm_start_from"
    last = "embedding_config_spec export_saved_model_api_version"
    assert " ".join(names) == f"{first} {then} {last}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_config_spec": 1}, "embedding_config_spec is 1. Give a"),
        ({"export_saved_model_api_version": 3}, "export_saved_model_api_version is 3"),
        ({"train_batch_size": 0}, "train_batch_size is 0"),
        ({"eval_batch_size": "many"}, "eval_batch_size is 'many'"),
        ({"predict_batch_size": 1.5}, "predict_batch_size is 1.5"),
        ({"batch_axis": 1}, "batch_axis is 1. Give an axis for each tensor"),
        ({"batch_axis": [0, "x"]}, "An axis of batch_axis is 'x'"),
        ({"batch_axis": ({"x": -1}, None)}, "An axis of batch_axis is -1"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_impossible_arguments_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        programs.estimator(tmp_path, **options)


def test_a_config_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="`config` must be provided"):
        trainer.TPUEstimator(programs.slope_model_fn, str(tmp_path))


def test_model_parallelism_wants_per_host_input(tmp_path: Path) -> None:
    config = trainer.RunConfig(
        trainer.TPUConfig(num_cores_per_replica=2, per_host_input_for_training=False)
    )
    with pytest.raises(InvalidSetting, match="Model parallelism only supports per host input"):
        trainer.TPUEstimator(programs.slope_model_fn, str(tmp_path), config, {"rate": 1.0})


def test_only_training_on_a_tpu_needs_a_train_batch_size(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, use_tpu=True)
    with pytest.raises(InvalidSetting, match="`train_batch_size` is needed"):
        estimator.train(programs.ones(), max_steps=1)
    with pytest.raises(TpuNotFound):
        estimator.predict(programs.ones())


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "warnings"), [("", 0), ("0", 0), ("8", 1)])
def test_a_run_on_the_cpu_beside_an_emulated_tpu_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, cores: str, warnings: int
) -> None:
    monkeypatch.setenv("TPUSERVE_EMULATED_TPU", cores)
    programs.estimator(tmp_path).train(programs.ones(), max_steps=1)
    expected = "train runs on the CPU: a TPU is emulated, and TPUEstimator has use_tpu=False. To"
    assert len([text for text in caplog.messages if text.startswith(expected)]) == warnings


def test_an_estimator_for_a_tpu_can_evaluate_off_it(tmp_path: Path) -> None:
    programs.estimator(tmp_path).train(programs.ones(), max_steps=1)
    estimator = programs.estimator(tmp_path, use_tpu=True, eval_on_tpu=False)
    assert estimator.evaluate(programs.ones(), steps=1)["mean_y"] == 0.5


def test_off_the_tpu_model_fn_may_return_an_estimator_spec(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return programs.slope_model_fn(features, labels, mode, params).as_estimator_spec()

    programs.estimator(tmp_path, model_fn=model_fn).train(programs.ones(), max_steps=1)
    assert programs.variable(tmp_path, "w") == 0.5


def test_a_strategy_of_several_replicas_and_cores_are_too_many(tmp_path: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"])
    config = trainer.RunConfig(train_distribute=strategy)
    estimator = trainer.TPUEstimator(
        programs.slope_model_fn, str(tmp_path), config, use_tpu=True, train_batch_size=4
    )
    with pytest.raises(InvalidSetting) as refused:
        estimator.train(programs.ones(), max_steps=1)
    assert str(refused.value) == (
        "RunConfig train_distribute is a MirroredStrategy of 2 replicas, and use_tpu=True makes "
        "each core a replica. Leave one of them out."
    )
