"""The TPU system that a run finds, and the errors if there is none or the program does not fit."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tests.pjrt_devices import pjrt_devices
from tests.trainer import programs
from tpuserve.errors import InvalidSetting, TpuNotFound
from trainer.backends.tpu.runtime_resolution import EmulatedRuntime, PjrtTpuRuntime, resolve_runtime
from trainer.backends.tpu.tensorflow_runtime import TensorFlowRuntime, run_on_master
from trainer.distribution.topology import BatchTopology, EmulatedTpuSlice, TpuSlice


@pytest.fixture(scope="module")
def server() -> Any:
    """Return the server of a cluster with one worker, which has a CPU and no TPU."""
    return tf.distribute.Server({"worker": ["localhost:0"]}, job_name="worker", task_index=0)


@pytest.fixture
def master(server: Any) -> str:
    target: str = server.target
    return target


def config(master: str | None = None, **options: Any) -> trainer.RunConfig:
    return trainer.RunConfig(trainer.TPUConfig(**options), master=master)


def test_a_system_without_tpu_cores_is_refused_with_what_it_has(
    master: str, tmp_path: Path
) -> None:
    estimator = trainer.TPUEstimator(
        programs.slope_model_fn, str(tmp_path), config(master), {"rate": 0.5}, train_batch_size=8
    )
    with pytest.raises(TpuNotFound, match="Cannot find any TPU cores in the system") as refused:
        estimator.train(programs.ones(), steps=1)
    assert master in str(refused.value)
    assert "/job:worker/replica:0/task:0/device:CPU:0" in str(refused.value)


def test_evaluation_asks_its_own_master(master: str) -> None:
    two_masters = trainer.RunConfig(
        trainer.TPUConfig(), master="grpc://somewhere:1", evaluation_master=master
    )
    with pytest.raises(TpuNotFound, match=master):
        resolve_runtime(two_masters, "eval")


def test_without_a_master_and_a_tpu_it_says_how_to_emulate_one() -> None:
    with pytest.raises(TpuNotFound, match="emulated_tpu"):
        resolve_runtime(config(), "train")


def test_an_emulated_system_is_preferred_to_a_master() -> None:
    with tpuserve.emulated_tpu(cores=8, hosts=2):
        runtime = resolve_runtime(config("grpc://somewhere:1"), "train")
    system = EmulatedTpuSlice(2, 8)
    assert runtime == EmulatedRuntime(system, is_compiled=True, requested_by="emulated_tpu()")


def test_pjrt_devices_are_the_system_if_they_are_selected() -> None:
    pytest.importorskip("jax")
    with pjrt_devices(4):
        runtime = resolve_runtime(config(), "train")
    assert isinstance(runtime, PjrtTpuRuntime)
    assert str(runtime.system) == "4 PJRT devices on 1 host (cpu)"


@pytest.mark.parametrize(("compiled", "configured"), [(True, False), (False, True)])
def test_compiling_is_off_if_the_config_or_the_system_switches_it_off(
    compiled: bool, configured: bool
) -> None:
    with tpuserve.emulated_tpu(cores=2, compiled=compiled):
        runtime = resolve_runtime(config(compile_emulated=configured), "train")
    assert isinstance(runtime, EmulatedRuntime)
    assert not runtime.is_compiled


@pytest.mark.parametrize(
    ("options", "batch_size", "text"),
    [
        ({"num_shards": 4}, 8, "TPUConfig.num_shards is not set correctly"),
        ({"num_cores_per_replica": 16}, 8, "num_cores_per_replica is 16"),
        ({}, 9, "train_batch_size .9. must be divisible"),
        ({}, None, "train_batch_size is None"),
    ],
)
def test_a_program_that_does_not_fit_the_system_is_refused(
    tmp_path: Path, options: dict[str, Any], batch_size: int | None, text: str
) -> None:
    with tpuserve.emulated_tpu(cores=8), pytest.raises(InvalidSetting, match=text):
        trainer.TPUEstimator(
            programs.slope_model_fn,
            str(tmp_path),
            config(**options),
            {"rate": 0.5},
            train_batch_size=batch_size,
        ).train(programs.ones(), steps=1)


def test_a_session_on_a_master_runs_there(master: str) -> None:
    (device,) = run_on_master(master, config(master), lambda: [tf.constant(b"here")])
    assert device == b"here"


def test_each_replica_of_an_emulated_system_has_its_own_cores() -> None:
    settings = trainer.TPUConfig(num_cores_per_replica=2)
    emulated = EmulatedTpuSlice(1, 8)
    topology = BatchTopology(emulated, settings, "train", 8)
    cores = EmulatedRuntime(emulated).device_assignment(topology, config())
    assert cores.num_replicas == 4
    assert [cores.coordinates(3, core)[0] for core in range(2)] == [6, 7]


def test_the_system_is_initialised_again_after_a_lost_session(master: str) -> None:
    runtime = TensorFlowRuntime(TpuSlice(1, 8, job="worker"), master)
    local = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    resolved = trainer.RunConfig(trainer.TPUConfig(), cluster=local)
    for run_config in (config(master), resolved):
        (hook,) = runtime.preemption_hooks(run_config)
        hook.after_create_session(None, None)
    assert EmulatedRuntime(EmulatedTpuSlice(1, 8)).preemption_hooks(resolved) == ()
