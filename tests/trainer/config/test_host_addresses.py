import json

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config import tf_config
from trainer.config.host_addresses import HostAddresses, read_host_addresses


def hosts(index: object, **variables: str) -> HostAddresses | None:
    return read_host_addresses({**variables, "TPUSERVE_HOST_INDEX": str(index)})


def test_the_variables_name_the_hosts_and_this_one() -> None:
    expected = HostAddresses(1, ("a:7", "b", "c"))
    assert hosts(1, TPUSERVE_HOSTS="a:7,b, c") == expected
    assert (
        read_host_addresses({"TPU_WORKER_HOSTNAMES": "a:7,b,c", "TPU_WORKER_ID": "1"}) == expected
    )
    assert expected.first == ("a", 7)
    assert HostAddresses(0, ("a", "b")).first == ("a", 8490)
    assert HostAddresses(0, ("[::1]:7", "b")).first == ("::1", 7)


@pytest.mark.parametrize("value", ["", "localhost"])
def test_a_single_host_needs_no_others(value: str) -> None:
    assert read_host_addresses({"TPU_WORKER_HOSTNAMES": value, "TPU_WORKER_ID": "0"}) is None


@pytest.mark.parametrize(
    ("index", "addresses", "text"),
    [
        ("2", "a,b", "TPUSERVE_HOST_INDEX is '2'. Set .* from 0 to 1"),
        ("", "a,b", "TPUSERVE_HOST_INDEX is ''"),
        ("one", "a,b", "TPUSERVE_HOST_INDEX is 'one'"),
        ("0", "a,,b", "has an empty address"),
        ("0", "a:x,b", "The address of host 0 in TPUSERVE_HOSTS is 'a:x'"),
        ("0", "a:0,b", "The address of host 0"),
    ],
)
def test_wrong_values_are_refused(index: str, addresses: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        hosts(index, TPUSERVE_HOSTS=addresses)


@pytest.mark.parametrize(("task", "index"), [(("chief", 0), 0), (("worker", 1), 2)])
def test_chief_and_workers_of_tf_config_are_hosts(task: tuple[str, int], index: int) -> None:
    cluster_task = read_task({"chief": ["a:7"], "worker": ["b:1", "c:1"]}, *task)
    assert cluster_task.hosts == HostAddresses(index, ("a:7", "b:1", "c:1"))


def test_other_clusters_have_no_hosts() -> None:
    with_ps = {"chief": ["a:7"], "worker": ["b:1"], "ps": ["c:1"]}
    assert read_task(with_ps, "worker", 0).hosts is None
    assert read_task({"chief": ["a:7"]}, "chief", 0).hosts is None
    assert read_task({"chief": ["a:7"], "worker": ["b:1"]}, "evaluator", 0).hosts is None


def test_host_0_is_the_chief() -> None:
    environments = [{"TPUSERVE_HOSTS": "a,b", "TPUSERVE_HOST_INDEX": index} for index in ("0", "1")]
    first, second = map(tf_config.read_cluster_task, environments)
    assert (first.is_chief, second.is_chief) == (True, False)
    assert (second.task_type, second.task_id, second.global_id_in_cluster) == ("worker", 1, 1)
    assert second.num_worker_replicas == 2


def test_two_ways_to_name_hosts_are_refused() -> None:
    config = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}}
    task = {"type": "chief", "index": 0}
    environ = {"TF_CONFIG": json.dumps({**config, "task": task}), "TPUSERVE_HOSTS": "a,b"}
    with pytest.raises(InvalidSetting, match="TPUSERVE_HOSTS is set, and TF_CONFIG has a cluster"):
        tf_config.read_cluster_task(environ)


def read_task(
    cluster: dict[str, list[str]], task_type: str, task_index: int
) -> tf_config.ClusterTask:
    task = {"type": task_type, "index": task_index}
    config = json.dumps({"cluster": cluster, "task": task})
    return tf_config.read_cluster_task({"TF_CONFIG": config})
