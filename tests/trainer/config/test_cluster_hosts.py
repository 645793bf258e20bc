import json
from types import SimpleNamespace
from typing import Any

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config import cluster_hosts
from trainer.config.cluster_hosts import Task
from trainer.config.run_config import RunConfig
from trainer.config.tpu_config import TPUConfig

# A RunConfig with TF_CONFIG's cluster imports TensorFlow.
CHIEF, FIRST, SECOND = Task("chief", 0, "a:1"), Task("worker", 0, "b:1"), Task("worker", 1, "c:1")
JOBS = {"worker": ["b:1", "c:1"], "chief": ["a:1"]}


def describe(patch: pytest.MonkeyPatch, jobs: Any, job: str, index: int = 0) -> None:
    described = {"cluster": jobs, "task": {"type": job, "index": index}}
    patch.setenv("TF_CONFIG", json.dumps(described))


class Spec:
    """A ClusterSpec without TensorFlow."""

    def __init__(self, jobs: dict[str, list[str]]) -> None:
        self.jobs = jobs

    def __bool__(self) -> bool:
        return bool(self.jobs)

    def task_indices(self, job: str) -> range:
        return range(len(self.jobs[job]))

    def task_address(self, job: str, index: int) -> str:
        return self.jobs[job][index]


def config_of(jobs: dict[str, list[str]], job: str | None, index: int | None, **more: Any) -> Any:
    """What of a RunConfig with a cluster resolver says which hosts there are."""
    resolver = SimpleNamespace(cluster_spec=lambda: Spec(jobs), task_type=job, task_id=index)
    return SimpleNamespace(cluster=resolver, task_type="worker", tpu_config=TPUConfig(**more))


def test_the_chief_leads_and_is_host_0(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, JOBS, "worker", 1)
    hosts = cluster_hosts.find_cluster_hosts(RunConfig())
    assert hosts is not None
    assert hosts.hosts == (CHIEF, FIRST, SECOND)
    assert (hosts.leader, hosts.own) == (CHIEF, SECOND)
    assert hosts.is_led_by_other
    assert hosts.others == (CHIEF, FIRST)
    assert CHIEF.device == "/job:chief/task:0/device:CPU:0"
    assert str(SECOND) == "worker 1 (c:1)"


def test_a_process_alone_and_an_evaluator_are_no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_hosts.find_cluster_hosts(RunConfig()) is None
    describe(monkeypatch, JOBS, "evaluator")
    assert cluster_hosts.find_cluster_hosts(RunConfig()) is None
    describe(monkeypatch, {"chief": ["a:1"]}, "chief")
    assert cluster_hosts.find_cluster_hosts(RunConfig()) is None
    assert cluster_hosts.find_cluster_hosts(config_of(JOBS, "evaluator", 0)) is None


def test_parameter_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, {**JOBS, "ps": ["d:1"]}, "chief")
    with pytest.raises(InvalidSetting, match="the cluster has a job 'ps'.* give use_tpu=False"):
        cluster_hosts.find_cluster_hosts(RunConfig())


def test_the_first_worker_of_a_resolver_leads() -> None:
    hosts = cluster_hosts.find_cluster_hosts(config_of({"worker": ["b:1", "c:1"]}, "worker", 0))
    assert hosts is not None
    assert hosts.hosts == (FIRST, SECOND)
    assert hosts.leader == hosts.own == FIRST
    assert not hosts.is_led_by_other


def test_a_coordinator_leads_and_is_no_host() -> None:
    jobs = {"worker": ["b:1", "c:1"], "coordinator": ["a:1"]}
    hosts = cluster_hosts.find_cluster_hosts(config_of(jobs, "coordinator", 0))
    assert hosts is not None
    assert hosts.hosts == (FIRST, SECOND)
    assert hosts.leader == hosts.own == Task("coordinator", 0, "a:1")
    assert hosts.others == (FIRST, SECOND)


def test_a_process_outside_of_the_cluster_has_no_task() -> None:
    hosts = cluster_hosts.find_cluster_hosts(config_of({"worker": ["b:1", "c:1"]}, None, None))
    assert hosts is not None
    assert hosts.own is None
    assert not hosts.is_led_by_other
    assert hosts.others == (FIRST, SECOND)


def test_one_of_several_jobs_is_named() -> None:
    jobs = {"a": ["b:1", "c:1"], "b": ["d:1", "e:1"]}
    with pytest.raises(InvalidSetting, match="Give TPUConfig tpu_job_name"):
        cluster_hosts.find_cluster_hosts(config_of(jobs, "a", 0))
    hosts = cluster_hosts.find_cluster_hosts(config_of(jobs, "b", 0, tpu_job_name="b"))
    assert hosts is not None
    assert [host.address for host in hosts.hosts] == ["d:1", "e:1"]
    assert hosts.leader == hosts.own == hosts.hosts[0]


def test_the_resolver_of_a_real_tpu_gives_no_hosts() -> None:
    class TPUClusterResolver(SimpleNamespace):
        pass

    config = config_of({"worker": ["b:1", "c:1"]}, None, None)
    config.cluster = TPUClusterResolver(**vars(config.cluster))
    assert cluster_hosts.find_cluster_hosts(config) is None
