import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer import RunConfig
from trainer.config import strategies
from trainer.config.host_addresses import HostAddresses
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


def test_the_first_worker_leads_a_cluster_of_workers_if_there_is_a_strategy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = {"worker": ["b:1", "c:1"]}
    for index in range(2):
        described = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(described))
        leader = RunConfig(train_distribute=tf.distribute.get_strategy())
        assert (leader.task_type, leader.is_chief) == ("worker", index == 0)
        assert (leader.num_worker_replicas, leader.global_id_in_cluster) == (2, index)
        assert leader.task.hosts == HostAddresses(index, ("b:1", "c:1"))
        with pytest.raises(InvalidSetting, match='must have one "chief" node'):
            RunConfig()


def test_parameter_servers_of_tf_config_are_those_of_their_strategy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = {
        "cluster": {"worker": ["b:1", "c:1"], "ps": ["d:1"]},
        "task": {"type": "worker", "index": 1},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    strategy = v1.distribute.experimental.ParameterServerStrategy()
    config = RunConfig(train_distribute=strategy)
    assert strategies.count_replicas(config.train_distribute) == 1
    assert (config.num_ps_replicas, config.num_worker_replicas) == (1, 2)
    assert (config.is_chief, config.master, config.task.hosts) == (False, "grpc://c:1", None)
