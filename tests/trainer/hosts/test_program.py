"""The clusters whose processes cannot train together on the TPU of this process."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

import tpuserve
import trainer
from tpuserve.errors import InvalidSetting
from trainer.hosts import program

JOBS = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}


def describe(patch: pytest.MonkeyPatch, jobs: Any, job: str = "chief") -> None:
    described = {"cluster": jobs, "task": {"type": job, "index": 0}}
    patch.setenv("TF_CONFIG", json.dumps(described))


@pytest.fixture
def _pjrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPUSERVE_TPU_RUNTIME", "pjrt")
    monkeypatch.setenv("TPUSERVE_PJRT_PLATFORM", "cpu")


def test_an_emulated_tpu_is_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        r"TF_CONFIG has a cluster of {} processes, and the emulated TPU of emulated_tpu\(\) is in "
        r"one process\. Set TPUSERVE_TPU_RUNTIME=pjrt and TPUSERVE_PJRT_PLATFORM=cpu"
    )
    for jobs, count in ((JOBS, 3), ({**JOBS, "ps": ["d:1"]}, 4)):
        describe(monkeypatch, jobs)
        with tpuserve.emulated_tpu(2), pytest.raises(InvalidSetting, match=text.format(count)):
            program.join_hosts(trainer.RunConfig())


def test_train_and_evaluate_refuses_the_cluster_before_it_starts_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    describe(monkeypatch, JOBS)
    config = trainer.RunConfig(trainer.TPUConfig(), model_dir=str(tmp_path))
    estimator = trainer.TPUEstimator(lambda features: None, config=config, train_batch_size=2)
    specs = trainer.TrainSpec(list, max_steps=1), trainer.EvalSpec(list)
    with tpuserve.emulated_tpu(2), pytest.raises(InvalidSetting, match="a cluster of 3 processes"):
        trainer.train_and_evaluate(estimator, *specs)


def test_a_process_alone_and_an_evaluator_emulate_a_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for jobs, job in (({"chief": ["a:1"]}, "chief"), (JOBS, "evaluator")):
        describe(monkeypatch, jobs, job)
        with tpuserve.emulated_tpu(2):
            assert not program.runs_on_several_hosts(trainer.RunConfig())


@pytest.mark.usefixtures("_pjrt")
@pytest.mark.parametrize("emulates", [True, False])
def test_a_resolver_of_several_tasks_is_refused(emulates: bool) -> None:
    spec = tf.train.ClusterSpec({"worker": ["b:1", "c:1"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="worker", task_id=0, rpc_layer="grpc"
    )
    config = trainer.RunConfig(trainer.TPUConfig(), cluster=resolver)
    text = "cluster resolver has 2 tasks, .* only TF_CONFIG or TPUSERVE_HOSTS names the hosts"
    with (
        tpuserve.emulated_tpu(2) if emulates else contextlib.nullcontext(),
        pytest.raises(InvalidSetting, match=text),
    ):
        program.join_hosts(config)


def test_the_resolver_of_a_real_tpu_names_no_hosts() -> None:
    class TPUClusterResolver(SimpleNamespace):
        pass

    spec = tf.train.ClusterSpec({"worker": ["b:1", "c:1"]})
    resolver = TPUClusterResolver(cluster_spec=lambda: spec, master=lambda: "grpc://b:1")
    config = trainer.RunConfig(trainer.TPUConfig(), cluster=resolver)
    with tpuserve.emulated_tpu(2):
        assert not program.runs_on_several_hosts(config)


@pytest.mark.usefixtures("_pjrt")
def test_jobs_other_than_chief_and_worker_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, {**JOBS, "ps": ["d:1"]})
    text = "TF_CONFIG has the jobs ps, .* only a chief and workers"
    with pytest.raises(InvalidSetting, match=text):
        program.join_hosts(trainer.RunConfig())
