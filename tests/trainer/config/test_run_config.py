import copy
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig, RunConfig, TPUConfig

V2 = InputPipelineConfig.PER_HOST_V2


def checkpoints(config: RunConfig) -> tuple[int | None, float | None]:
    return config.save_checkpoints_steps, config.save_checkpoints_secs


def test_checkpoints_come_every_ten_minutes_unless_something_else_is_said() -> None:
    assert checkpoints(RunConfig()) == (None, 600)
    assert checkpoints(RunConfig(save_checkpoints_steps=50)) == (50, None)
    assert checkpoints(RunConfig(save_checkpoints_secs=5)) == (None, 5)
    off = RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None)
    assert checkpoints(off) == (None, None)


def test_steps_and_seconds_between_checkpoints_exclude_each_other() -> None:
    with pytest.raises(InvalidSetting, match="save_checkpoints_steps=5 and .*_secs=6"):
        RunConfig(save_checkpoints_steps=5, save_checkpoints_secs=6)


def test_replacing_one_of_them_clears_the_other() -> None:
    assert checkpoints(RunConfig().replace(save_checkpoints_steps=7)) == (7, None)
    steps = RunConfig(save_checkpoints_steps=7)
    assert checkpoints(steps.replace(save_checkpoints_secs=9)) == (None, 9)
    assert checkpoints(steps.replace(model_dir="/m")) == (7, None)


@pytest.mark.parametrize("iterations", [0, -1, 1.5, "", "0s", "05m", "3d", "1|", True, None])
def test_iterations_per_loop_is_a_positive_whole_number(iterations: object) -> None:
    with pytest.raises(InvalidSetting, match=f"iterations_per_loop is {iterations!r}"):
        TPUConfig(iterations)  # type: ignore[arg-type]


def test_a_bad_setting_is_a_value_error_as_it_was_in_tf_estimator() -> None:
    with pytest.raises(ValueError, match="model_dir is empty"):
        RunConfig(model_dir="")
    with pytest.raises(ValueError, match="save_summary_steps is -1"):
        RunConfig(save_summary_steps=-1)


def test_tpu_config_takes_the_places_and_defaults_of_the_original() -> None:
    dims = [{"x": [2, 1]}]
    by_place = TPUConfig(7, 4, 2, V2, "job", 3, dims, InputPipelineConfig.SLICED, 5, True, print)
    assert by_place == TPUConfig(
        iterations_per_loop=7,
        num_shards=4,
        num_cores_per_replica=2,
        per_host_input_for_training=V2,
        tpu_job_name="job",
        initial_infeed_sleep_secs=3,
        input_partition_dims=dims,
        eval_training_input_configuration=InputPipelineConfig.SLICED,
        experimental_host_call_every_n_steps=5,
        experimental_allow_per_host_v2_parallel_get_next=True,
        experimental_feed_hook=print,
    )
    per_host = InputPipelineConfig.PER_HOST_V1
    assert TPUConfig() == TPUConfig(
        2, None, None, per_host, None, None, None, per_host, 1, False, None, compile_emulated=True
    )
    assert TPUConfig()._replace(num_shards=8) == TPUConfig(num_shards=8)


@pytest.mark.parametrize(("loop", "secs"), [("30s", 30), ("5m", 300), ("1h", 3600)])
def test_a_loop_may_be_counted_in_time(loop: str, secs: int) -> None:
    config = TPUConfig(loop)
    assert (config.iterations_per_loop, config.loop_secs) == (loop, secs)


def test_a_loop_counted_in_steps_takes_no_seconds() -> None:
    assert (TPUConfig("10").iterations_per_loop, TPUConfig("10").loop_secs) == (10, None)


@pytest.mark.parametrize(("value", "stored"), [(False, 1), (True, 2), (1, 1), (3, 3), (5, 5)])
def test_input_mode_is_stored_as_its_constant(value: Any, stored: int) -> None:
    assert TPUConfig(per_host_input_for_training=value).per_host_input_for_training == stored


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"num_shards": 0}, "num_shards is 0"),
        ({"num_cores_per_replica": 3}, "num_cores_per_replica is 3. Give one of 1, 2, 4, 8, 16"),
        ({"num_cores_per_replica": 256}, "num_cores_per_replica is 256"),
        ({"per_host_input_for_training": 6}, "per_host_input_for_training is 6"),
        ({"eval_training_input_configuration": V2}, "PER_HOST_V1 or SLICED"),
        ({"initial_infeed_sleep_secs": -1}, "initial_infeed_sleep_secs is -1"),
        ({"experimental_host_call_every_n_steps": 0}, "every_n_steps is 0"),
        ({"input_partition_dims": []}, "list/tuple with one or two elements"),
        ({"input_partition_dims": [{}, {}, {}]}, "list/tuple with one or two elements"),
        ({"input_partition_dims": [{}]}, "requires setting num_cores_per_replica"),
        (
            {"input_partition_dims": [{}], "num_cores_per_replica": 2},
            "only supported in PER_HOST_V2 mode",
        ),
    ],
)
def test_a_tpu_setting_that_cannot_work_is_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TPUConfig(**setting)


@pytest.mark.parametrize(
    "setting",
    [
        {"num_shards": "8"},
        {"num_shards": 8.0},
        {"tpu_job_name": 3},
        {"experimental_feed_hook": 1},
    ],
)
def test_a_tpu_setting_of_a_wrong_type_is_a_type_error(setting: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(setting))):
        TPUConfig(**setting)


def test_tpu_job_falls_back_to_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"service": {"tpu_worker_job_name": "cores"}}')
    assert TPUConfig().tpu_job_name == "cores"
    assert TPUConfig(tpu_job_name="mine").tpu_job_name == "mine"


def test_defaults_are_those_of_the_original() -> None:
    config = RunConfig()
    assert (config.model_dir, config.tf_random_seed, config.save_summary_steps) == (None, None, 100)
    assert (config.keep_checkpoint_max, config.keep_checkpoint_every_n_hours) == (5, 10_000)
    assert (config.log_step_count_steps, config.session_creation_timeout_secs) == (100, 7200)
    assert config.checkpoint_save_graph_def
    assert config.tpu_config == TPUConfig()
    assert RunConfig(None).tpu_config == TPUConfig()  # type: ignore[arg-type]


def test_a_path_in_the_first_place_is_the_model_dir(tmp_path: Path) -> None:
    assert RunConfig("/m", tf_random_seed=1).model_dir == "/m"  # type: ignore[arg-type]
    assert RunConfig(tmp_path).model_dir == str(tmp_path)  # type: ignore[arg-type]
    assert RunConfig("/m").tpu_config == TPUConfig()  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="Give one directory"):
        RunConfig("/m", model_dir="/n")  # type: ignore[arg-type]


def test_what_follows_a_model_dir_by_place_is_refused_and_not_lost() -> None:
    with pytest.raises(TypeError, match="is 42.*arguments by name"):
        RunConfig("/m", 42)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "save_checkpoints_steps",
        "save_summary_steps",
        "log_step_count_steps",
        "keep_checkpoint_max",
    ],
)
def test_a_float_counts_up_to_the_next_whole_number(name: str) -> None:
    for value, whole in [(1000 / 8, 125), (0.5, 1), (None, None)]:
        settings: dict[str, Any] = {name: value}
        number = getattr(RunConfig(**settings), name)
        assert (number, type(number)) == (whole, type(whole))


@pytest.mark.parametrize(
    "setting",
    [
        {"save_summary_steps": -1},
        {"save_summary_steps": -0.5},
        {"save_checkpoints_steps": float("inf")},
        {"save_checkpoints_steps": -1},
        {"save_checkpoints_secs": -0.5},
        {"keep_checkpoint_max": -1},
        {"keep_checkpoint_every_n_hours": 0},
        {"log_step_count_steps": 0},
        {"session_creation_timeout_secs": 0},
        {"session_creation_timeout_secs": float("nan")},
        {"tf_random_seed": 1.5},
        {"experimental_max_worker_delay_secs": "5"},
        {"session_config": {"allow_soft_placement": True}},
        {"protocol": "http"},
        {"device_fn": lambda node: "/cpu:0"},
        {"device_fn": lambda: "/cpu:0"},
        {"device_fn": "/cpu:0"},
        {"train_distribute": object()},
        {"eval_distribute": object()},
        {"experimental_distribute": object()},
        {"cluster": "localhost"},
        {"model_dir": 5},
        {"tpu_config": {"num_shards": 8}},
        {"profile_steps": 5},
        {"profile_steps": (0, 5)},
        {"profile_steps": (6, 5)},
        {"compile_step": "yes"},
        {"compile_step": 1},
        {"compile_step": None},
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(setting))):
        RunConfig(**setting)
    if "cluster" not in setting:
        with pytest.raises(InvalidSetting, match=next(iter(setting))):
            RunConfig().replace(**setting)


def test_settings_that_the_original_took_are_taken() -> None:
    bound = functools.partial(lambda op, device: device, device="/cpu:0")
    config = RunConfig(device_fn=bound, protocol="grpc+verbs", save_checkpoints_secs=0.5)
    assert config.device_fn is bound
    assert checkpoints(config) == (None, 0.5)
    assert RunConfig(tf_random_seed=-1, profile_steps=[3, 5]).profile_steps == (3, 5)  # type: ignore[arg-type]


def test_replace_changes_what_it_is_given_and_nothing_else() -> None:
    before = RunConfig(TPUConfig(5), model_dir="/m", master="grpc://one:1")
    after = before.replace(tpu_config=TPUConfig(9), tf_random_seed=3)
    assert (after.tpu_config.iterations_per_loop, after.tf_random_seed) == (9, 3)
    assert (after.model_dir, after.master) == ("/m", "grpc://one:1")
    assert before.tpu_config.iterations_per_loop == 5


@pytest.mark.parametrize("name", ["master", "evaluation_master", "cluster", "task", "steps"])
def test_replace_refuses_names_it_may_not_set(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"cannot set {name}"):
        RunConfig().replace(**{name: None})


def test_replace_refuses_both_distances_between_checkpoints() -> None:
    with pytest.raises(InvalidSetting, match="Give one of them"):
        RunConfig().replace(save_checkpoints_steps=5, save_checkpoints_secs=6)


def test_evaluation_runs_where_training_does_unless_said() -> None:
    assert RunConfig().evaluation_master == RunConfig().master == ""
    assert RunConfig(master="one").evaluation_master == "one"
    assert RunConfig(evaluation_master="two", master="one").evaluation_master == "two"
    assert RunConfig(evaluation_master="", master="one").evaluation_master == ""


def test_tf_config_says_what_this_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    described = {"cluster": cluster, "task": {"type": "worker", "index": 1}, "model_dir": "/m"}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**described, "service": {"zone": "x"}}))
    config = RunConfig()
    assert (config.task_type, config.task_id, config.is_chief) == ("worker", 1, False)
    assert (config.num_worker_replicas, config.num_ps_replicas) == (3, 1)
    assert (config.global_id_in_cluster, config.master) == (2, "grpc://c:1")
    assert (config.model_dir, config.service) == ("/m", {"zone": "x"})
    with pytest.raises(InvalidSetting, match="'/other', and TF_CONFIG's is '/m'"):
        RunConfig(model_dir="/other")
    assert config.replace(model_dir="/other").model_dir == "/other"


def test_an_evaluator_does_not_evaluate_on_the_training_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = {"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    config = RunConfig(master="grpc://a:1")
    assert (config.evaluation_master, config.global_id_in_cluster) == ("", None)


class Resolver:
    """A cluster resolver with the methods that RunConfig calls, without TensorFlow."""

    def master(self) -> str:
        return "grpc://tpu:8470"

    def cluster_spec(self) -> None:
        return None


def test_a_master_and_a_cluster_exclude_each_other() -> None:
    with pytest.raises(InvalidSetting, match="both master='one' and a cluster"):
        RunConfig(master="one", cluster=Resolver())


def test_a_resolver_gives_the_master_and_the_sessions_cluster() -> None:
    import tensorflow as tf

    spec = tf.train.ClusterSpec({"worker": ["a:1", "b:1"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, master="grpc://a:1")
    config = RunConfig(TPUConfig(), cluster=resolver)
    assert (config.master, config.evaluation_master) == ("grpc://a:1", "grpc://a:1")
    assert config.session_config.allow_soft_placement
    assert config.session_config.isolate_session_state
    assert config.session_config.cluster_def == spec.as_cluster_def()
    assert config.cluster_spec == spec
    assert config.tpu_job("train") == "worker"
    assert copy.deepcopy(config).session_config == config.session_config


def test_a_resolvers_cluster_joins_the_users_session_settings() -> None:
    import tensorflow as tf

    spec = tf.train.ClusterSpec({"worker": ["a:1"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, master="grpc://a:1")
    session_config = tf.compat.v1.ConfigProto(log_device_placement=True)
    config = RunConfig(cluster=resolver, session_config=session_config)
    assert config.session_config.log_device_placement
    assert config.session_config.HasField("cluster_def")
    assert not session_config.HasField("cluster_def")
    with pytest.raises(ValueError, match="a cluster_def already"):
        RunConfig(cluster=resolver, session_config=config.session_config)
    replaced = config.replace(session_config=session_config)
    assert replaced.session_config.cluster_def == spec.as_cluster_def()


def test_a_process_alone_has_an_empty_cluster() -> None:
    assert not RunConfig().cluster_spec


def test_importing_trainer_imports_no_tensorflow_and_chooses_legacy_keras() -> None:
    program = (
        "import os, sys; os.environ.pop('TF_USE_LEGACY_KERAS', None); import trainer\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert os.environ['TF_USE_LEGACY_KERAS'] == '1'\n"
        "assert 'TPUEstimator' in dir(trainer)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_can_be_imported() -> None:
    import trainer

    assert {"RunConfig", "TPUEstimator", "InputPipelineConfig"} <= set(dir(trainer))
    for name in dir(trainer):
        value = getattr(trainer, name)
        is_ours = getattr(value, "__module__", "trainer").startswith("trainer")
        assert value.__doc__ or not is_ours, name


def test_programs_may_hang_things_on_a_config_that_its_copies_keep() -> None:
    config: Any = RunConfig()
    config.device_info = {"gpus": 1}
    assert copy.deepcopy(config.replace(model_dir="m")).device_info == {"gpus": 1}


@pytest.mark.parametrize("name", ["model_dir", "task_type"])
def test_what_a_config_has_said_stays_so(name: str) -> None:
    with pytest.raises(AttributeError, match=f"RunConfig {name} cannot be set"):
        setattr(RunConfig(), name, "other")


class ConfigWithProperties(RunConfig):
    """A program's RunConfig that overrides settings by properties without setters."""

    @property
    def master(self) -> str:
        return "grpc://mine:1"

    @property
    def model_dir(self) -> str | None:
        return f"{super().model_dir}/run"


def test_a_subclass_overrides_settings_by_properties() -> None:
    config = ConfigWithProperties(TPUConfig(3), model_dir="/m", save_summary_steps=7)
    assert (config.master, config.evaluation_master) == ("grpc://mine:1", "grpc://mine:1")
    assert (config.model_dir, config.save_summary_steps) == ("/m/run", 7)
    copied = copy.deepcopy(config).replace(model_dir="/n")
    assert (type(copied), copied.model_dir) == (ConfigWithProperties, "/n/run")
    assert copied.master == "grpc://mine:1"


def test_no_hours_between_kept_checkpoints_are_a_valid_setting() -> None:
    assert RunConfig(keep_checkpoint_every_n_hours=None).keep_checkpoint_every_n_hours is None


CLUSTER = {"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1", "d:1"]}


@pytest.mark.parametrize(
    ("task", "index", "filters"),
    [
        ("chief", 0, ["/job:ps", "/job:chief"]),
        ("worker", 1, ["/job:ps", "/job:worker/task:1"]),
        ("ps", 0, ["/job:ps", "/job:worker", "/job:chief", "/job:master"]),
    ],
)
def test_a_plain_config_of_a_cluster_evaluates_here_and_sees_its_servers(
    task: str, index: int, filters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    described = {"cluster": CLUSTER, "task": {"type": task, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    plain = RunConfig()
    assert plain.evaluation_master == ""
    assert list(plain.session_config.device_filters) == filters
    assert plain.session_config.allow_soft_placement
    config = RunConfig(TPUConfig())
    assert (config.evaluation_master, config.session_config) == (config.master, None)


def test_an_evaluator_has_no_session_settings_and_no_training_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = {"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**described, "session_master": "grpc://chief:1"}))
    assert (RunConfig().session_config, RunConfig().evaluation_master) == (None, "")


@pytest.mark.parametrize("task", ["chief", "evaluator"])
def test_a_resolver_of_tf_config_is_as_tf_config_alone(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    described = {
        "cluster": {"chief": ["a:1"], "worker": ["b:1"]},
        "task": {"type": task, "index": 0},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    resolvers = tf.distribute.cluster_resolver
    assert RunConfig(cluster=resolvers.TFConfigClusterResolver()) == RunConfig()
    other = RunConfig(cluster=resolvers.TFConfigClusterResolver("worker", 0))
    assert (other.cluster is None, other.master) == (False, "b:1")


def test_a_resolver_of_another_cluster_than_tf_configs_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tensorflow as tf

    described = {"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(described))
    spec = tf.train.ClusterSpec({"chief": ["a:1"], "worker": ["b:1"]})

    class WiderResolver(tf.distribute.cluster_resolver.TFConfigClusterResolver):
        def cluster_spec(self) -> Any:
            return spec

    assert RunConfig(cluster=WiderResolver()).cluster_spec == spec
