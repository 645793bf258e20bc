import logging
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig, TPUConfig
from trainer.distribution.topology import (
    BatchTopology,
    EmulatedTpuSlice,
    Pipeline,
    PjrtSlice,
    TpuSlice,
)

V1_SHARD, V1, V2, BROADCAST, SLICED = InputPipelineConfig
ONE_HOST, FOUR_HOSTS = TpuSlice(1, 8), TpuSlice(4, 32, job="worker")
REFUSED = None
MODES = ("train", "eval", "infer")

# Each row: system; input mode; further options; the batch sizes of input_fn in training, evaluation
# and prediction for a global batch of 64 rows; the same for model_fn; the number of calls of
# input_fn in training; the number of replicas that each call feeds.
TABLE: list[Any] = [
    (ONE_HOST, V1_SHARD, {}, (8, 64, 64), (8, 8, 8), 8, 1),
    (ONE_HOST, V1, {}, (64, 64, 64), (8, 8, 8), 1, 8),
    (ONE_HOST, V2, {}, (8, 8, 8), (8, 8, 8), 1, 8),
    (ONE_HOST, BROADCAST, {}, (64, 64, 64), (64, 64, 64), 1, 8),
    (ONE_HOST, V1, {"eval": SLICED}, (64, 64, 64), (8, 8, 8), 1, 8),
    (ONE_HOST, V1, {"cores": 2}, (64, 64, 64), (16, 16, 16), 1, 4),
    (ONE_HOST, V2, {"cores": 2}, (16, 16, 16), (16, 16, 16), 1, 4),
    (ONE_HOST, BROADCAST, {"cores": 2}, (64, 64, 64), (64, 64, 64), 1, 4),
    (FOUR_HOSTS, V1_SHARD, {}, (2, REFUSED, REFUSED), (2, REFUSED, REFUSED), 32, 1),
    (FOUR_HOSTS, V1, {}, (16, REFUSED, REFUSED), (2, REFUSED, REFUSED), 4, 8),
    (FOUR_HOSTS, V2, {}, (2, 2, REFUSED), (2, 2, REFUSED), 4, 8),
    (FOUR_HOSTS, BROADCAST, {}, (64, 64, 64), (64, 64, 64), 1, 32),
    (FOUR_HOSTS, V1, {"eval": SLICED}, (16, 64, 64), (2, 2, 2), 4, 8),
    (FOUR_HOSTS, V2, {"cores": 16}, (32, 32, REFUSED), (32, 32, REFUSED), 2, 1),
]


def topology(
    system: TpuSlice,
    input_mode: int = V1,
    mode: str = "train",
    batch_size: int | None = 64,
    **options: Any,
) -> BatchTopology:
    config = TPUConfig(
        num_shards=options.get("shards"),
        num_cores_per_replica=options.get("cores"),
        per_host_input_for_training=input_mode,
        eval_training_input_configuration=options.get("eval", V1),
    )
    return BatchTopology(system, config, mode, batch_size)


@pytest.mark.parametrize(
    ("system", "input_mode", "options", "inputs", "models", "calls", "fed"), TABLE
)
def test_batch_size_table_row(
    system: TpuSlice,
    input_mode: int,
    options: dict[str, Any],
    inputs: tuple[int | None, ...],
    models: tuple[int | None, ...],
    calls: int,
    fed: int,
) -> None:
    for mode, input_size, model_size in zip(MODES, inputs, models, strict=True):
        result = topology(system, input_mode, mode, **options)
        if input_size is REFUSED:
            with pytest.raises(InvalidSetting, match="32 TPU cores on 4 hosts"):
                result.check()
            continue
        result.check()
        assert result.batch_size_for_input_fn == input_size
        assert result.batch_size_for_model_fn == model_size
        assert isinstance(result.batch_size_for_input_fn, int)
        assert isinstance(result.batch_size_for_model_fn, int)
    pipelines = topology(system, input_mode, **options).pipelines
    assert [len(pipeline.replicas) for pipeline in pipelines] == [fed] * calls
    assert [pipeline.index for pipeline in pipelines] == list(range(calls))


def test_replicas_of_two_hosts_are_fed_from_the_first_of_each() -> None:
    pipelines = topology(FOUR_HOSTS, V2, cores=16).pipelines
    assert [(pipeline.host, pipeline.replicas) for pipeline in pipelines] == [(0, (0,)), (2, (1,))]


def test_sliced_evaluation_feeds_all_replicas_from_one_call() -> None:
    device = "/job:worker/task:0/device:CPU:0"
    pipelines = topology(FOUR_HOSTS, V1, "eval", eval=SLICED).pipelines
    assert pipelines == (Pipeline(0, 0, device, tuple(range(32))),)


def test_a_call_for_each_replica_runs_on_the_host_of_the_replica() -> None:
    pipelines = topology(FOUR_HOSTS, V1_SHARD).pipelines
    assert [pipelines[index].host for index in (0, 7, 8, 31)] == [0, 0, 1, 3]
    assert pipelines[31].device == "/job:worker/task:3/device:CPU:0"


def test_predict_on_many_hosts_takes_one_replica_of_all_cores() -> None:
    result = topology(FOUR_HOSTS, V2, "infer", cores=32)
    result.check()
    assert (result.replicas, result.batch_size_for_input_fn) == (1, 64)


def test_infeed_ordinals_count_the_cores_of_a_host_or_of_an_emulated_system() -> None:
    real, emulated = topology(TpuSlice(2, 8), cores=2), topology(EmulatedTpuSlice(2, 8), cores=2)
    assert [real.host_of(replica) for replica in range(4)] == [0, 0, 1, 1]
    assert [real.ordinal_of(replica, 1) for replica in range(4)] == [1, 3, 1, 3]
    assert [emulated.ordinal_of(replica, 1) for replica in range(4)] == [1, 3, 5, 7]
    assert [emulated.ordinal_of(replica) for replica in range(4)] == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("hosts", "cores", "text"),
    [
        (0, 0, "0 TPU cores on 0 hosts"),
        (1, 1, "1 TPU core on 1 host"),
        (2, 2, "2 TPU cores on 2 hosts"),
    ],
)
def test_text_of_a_slice_counts_cores_and_hosts(hosts: int, cores: int, text: str) -> None:
    assert str(TpuSlice(hosts, cores)) == text


@pytest.mark.parametrize(
    ("value", "attribute"),
    [(ONE_HOST, "cores"), (topology(ONE_HOST), "mode"), (Pipeline(0, 0, "", ()), "host")],
)
def test_slices_topologies_and_pipelines_cannot_be_changed(value: object, attribute: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, attribute, None)


def test_hosts_of_an_emulated_system_are_this_process() -> None:
    here = "/replica:0/task:0/device:CPU:0"
    assert topology(EmulatedTpuSlice(2, 8)).host_device(1) == here
    assert topology(TpuSlice(1, 8)).host_device(0) == here


def test_replicas_of_each_host_are_counted_where_a_host_has_some() -> None:
    replicas_per_host = topology(FOUR_HOSTS, V2, cores=2).replicas_per_host
    assert replicas_per_host == 4
    assert isinstance(replicas_per_host, int)
    assert topology(ONE_HOST, cores=8).replicas_per_host == 1
    with pytest.raises(InvalidSetting, match="num_cores_per_replica is 16 and a host has 8 cores"):
        _ = topology(FOUR_HOSTS, V2, cores=16).replicas_per_host


def test_one_shard_uses_one_core_and_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    one = topology(FOUR_HOSTS, V1, "infer", shards=1)
    with caplog.at_level(logging.WARNING, "tensorflow.trainer"):
        one.check()
        topology(TpuSlice(1, 2), shards=1).check()
    assert "only one of 32 TPU cores on 4 hosts is used" in caplog.text
    assert "only one of 2 TPU cores on 1 host is used" in caplog.text
    assert (one.hosts, one.replicas, one.batch_size_for_model_fn) == (1, 1, 64)
    assert len(one.pipelines) == 1


@pytest.mark.parametrize(
    "complete", [topology(ONE_HOST), topology(TpuSlice(1, 1), shards=1, batch_size=1)]
)
def test_run_that_uses_all_cores_logs_no_warning(
    complete: BatchTopology, caplog: pytest.LogCaptureFixture
) -> None:
    complete.check()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (topology(TpuSlice(0, 0)), "Cannot find any TPU cores in the system"),
        (topology(TpuSlice(1, 0)), "Cannot find any TPU cores in the system"),
        (topology(TpuSlice(0, 8)), "Cannot find any TPU cores in the system"),
        (topology(ONE_HOST, shards=4), "num_shards is not set correctly: it is 4, .* 8 replicas"),
        (topology(ONE_HOST, cores=2, shards=8), "num_shards is not set correctly"),
        (topology(ONE_HOST, cores=16), "num_cores_per_replica is 16, .* at most 8"),
        (topology(FOUR_HOSTS, cores=16), "a host has 8 cores.*PER_HOST_V2"),
        (topology(FOUR_HOSTS, BROADCAST, cores=16), "a host has 8 cores.*PER_HOST_V2"),
        (topology(FOUR_HOSTS, mode="eval"), r"evaluate .* use .*\.PER_HOST_V2, or BROADCAST"),
        (topology(FOUR_HOSTS, mode="infer"), "predict .*_V2 with one replica of all cores, or"),
        (topology(TpuSlice(1, 6), cores=4), "num_cores_per_replica is 4, .* evenly"),
        (topology(TpuSlice(3, 24), V2, cores=16), "num_cores_per_replica is 16, .* evenly"),
        (
            topology(ONE_HOST, batch_size=12),
            "train_batch_size .12. .* replicas .8.*example 8 or 16",
        ),
        (topology(TpuSlice(1, 6), batch_size=16), "replicas .6.*example 12 or 18"),
        (topology(ONE_HOST, mode="eval", batch_size=4), "eval_batch_size .4. must .*example 8"),
        (
            topology(ONE_HOST, mode="infer", batch_size=9),
            "predict_batch_size .9. must be",
        ),
        (topology(ONE_HOST, mode="eval", batch_size=None), "eval_batch_size is None"),
        (topology(ONE_HOST, mode="infer", batch_size=None), "predict_batch_size is None"),
        (topology(ONE_HOST, batch_size=0), "train_batch_size is 0"),
    ],
)
def test_settings_that_do_not_fit_the_system_are_refused(
    wrong: BatchTopology, message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        wrong.check()


@pytest.mark.parametrize("mode", MODES)
def test_a_broadcast_batch_need_not_be_divisible(mode: str) -> None:
    result = topology(ONE_HOST, BROADCAST, mode, batch_size=9)
    result.check()
    assert result.batch_size_for_model_fn == 9


def test_explicit_replicas_of_one_core_are_model_parallel_and_use_all_cores() -> None:
    settings = topology(ONE_HOST, shards=1, cores=1)
    assert settings.is_model_parallel
    assert not settings.is_one_core
    assert topology(ONE_HOST, shards=1).is_one_core
    assert not topology(ONE_HOST).is_model_parallel


def test_a_process_of_several_hosts_feeds_its_own_cores() -> None:
    system = PjrtSlice(hosts=2, cores=8, local_host=1, platform="cpu")
    config = TPUConfig(per_host_input_for_training=InputPipelineConfig.PER_HOST_V2)
    batch_topology = BatchTopology(system, config, "train", 32)
    batch_topology.check()
    assert batch_topology.replicas == 8
    assert [pipeline.index for pipeline in batch_topology.local_pipelines] == [1]
    assert batch_topology.local_replicas == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"per_host_input_for_training": InputPipelineConfig.BROADCAST}, "input mode BROADCAST"),
        ({"per_host_input_for_training": InputPipelineConfig.SLICED}, "input mode SLICED"),
        ({"num_shards": 1}, "num_shards is 1, and the program runs on 8 PJRT devices on 2 hosts"),
    ],
)
def test_what_one_host_feeds_alone_is_refused_on_several(
    settings: dict[str, Any], text: str
) -> None:
    system = PjrtSlice(hosts=2, cores=8, local_host=1, platform="cpu")
    with pytest.raises(InvalidSetting, match=text):
        BatchTopology(system, TPUConfig(**settings), "train", 32).check()


def test_prediction_on_several_hosts_is_refused() -> None:
    system = PjrtSlice(hosts=2, cores=8, local_host=0, platform="cpu")
    config = TPUConfig(per_host_input_for_training=InputPipelineConfig.PER_HOST_V2)
    text = r"predict cannot run on 8 PJRT devices on 2 hosts .*Predict in one process"
    with pytest.raises(InvalidSetting, match=text):
        BatchTopology(system, config, "infer", 32).check()


def test_an_evaluation_on_several_hosts_is_told_the_only_input_mode() -> None:
    system = PjrtSlice(hosts=2, cores=8, local_host=0, platform="cpu")
    text = r"evaluate cannot run in the input mode PER_HOST_V1 on .*\. Use \S+PER_HOST_V2\.$"
    with pytest.raises(InvalidSetting, match=text):
        BatchTopology(system, TPUConfig(), "eval", 32).check()
