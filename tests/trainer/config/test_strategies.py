from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer import RunConfig
from trainer.config.strategies import DistributeConfig

v1 = tf.compat.v1
ONE_REPLICA = {
    "default": tf.distribute.get_strategy,
    "mirrored": tf.distribute.MirroredStrategy,
    "mirrored of TensorFlow 1": lambda: v1.distribute.MirroredStrategy(["/gpu:0"]),
    "one device": lambda: tf.distribute.OneDeviceStrategy("/gpu:0"),
    "one device of TensorFlow 1": lambda: v1.distribute.OneDeviceStrategy("device:CPU:0"),
    "parameter servers": v1.distribute.experimental.ParameterServerStrategy,
    "several workers": tf.distribute.MultiWorkerMirroredStrategy,
    "central storage": tf.distribute.experimental.CentralStorageStrategy,
}


@pytest.mark.parametrize("make", ONE_REPLICA.values(), ids=list(ONE_REPLICA))
def test_strategy_of_one_replica_is_a_setting(make: Any) -> None:
    strategy = make()
    config = RunConfig(train_distribute=strategy).replace(eval_distribute=strategy)
    assert config.train_distribute is config.eval_distribute is strategy


def test_strategies_of_a_distribute_config_are_those_of_the_run_config() -> None:
    training, evaluation = tf.distribute.get_strategy(), tf.distribute.OneDeviceStrategy("/cpu:0")
    config = RunConfig(experimental_distribute=DistributeConfig(training, evaluation))
    assert (config.train_distribute, config.eval_distribute) == (training, evaluation)
    replaced = RunConfig().replace(experimental_distribute=DistributeConfig(training))
    assert (replaced.train_distribute, replaced.eval_distribute) == (training, None)


def test_strategy_of_one_replica_trains_and_evaluates_as_no_strategy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = tf.distribute.OneDeviceStrategy("/gpu:0")
    config = RunConfig(model_dir=str(tmp_path), train_distribute=strategy, eval_distribute=strategy)

    def input_fn(input_context: Any) -> Any:
        assert input_context.num_replicas_in_sync == 1
        return programs.ones(1)()

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, {"rate": 0.5})
        return spec.as_estimator_spec()

    with caplog.at_level("INFO", "tensorflow.trainer"):
        estimator = trainer.Estimator(model_fn, config=config)
    assert [record.getMessage() for record in caplog.records] == [
        f"RunConfig {name}_distribute: OneDeviceStrategy has one replica, which runs as without a "
        f"strategy"
        for name in ("train", "eval")
    ]
    estimator.train(input_fn)
    # One step halves the distance of w, 0 at first, to 1; the loss is (1 - w)^2 / 2.
    assert estimator.evaluate(input_fn)["loss"] == 0.125


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"train_distribute": "mirrored"}, "train_distribute is 'mirrored'. Give a tf.distribute"),
        ({"experimental_distribute": 2}, "experimental_distribute is 2. Give a tf.contrib"),
        (
            {"experimental_distribute": DistributeConfig(eval_distribute=5)},
            "eval_distribute is 5",
        ),
        (
            {"experimental_distribute": DistributeConfig(remote_cluster={"worker": ["a:1"]})},
            "cannot run in other processes. Run it in each",
        ),
        (
            {
                "train_distribute": tf.distribute.get_strategy(),
                "experimental_distribute": DistributeConfig(
                    tf.distribute.OneDeviceStrategy("/cpu:0")
                ),
            },
            "Give one of them",
        ),
    ],
)
def test_strategy_that_cannot_work_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        RunConfig(**setting)
    with pytest.raises(InvalidSetting, match=message):
        RunConfig().replace(**setting)
