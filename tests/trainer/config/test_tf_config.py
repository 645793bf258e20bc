import json
from typing import Any

import pytest

from tpuserve.errors import InvalidSetting
from trainer.config.tf_config import ClusterTask, infer_tpu_job_name, read_cluster_task

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1", "e:1"]}


def task(task_type: Any = None, index: Any = 0, cluster: Any = None, **others: Any) -> ClusterTask:
    described = {"cluster": cluster, **others}
    if task_type is not None:
        described["task"] = {"type": task_type, "index": index}
    return read_cluster_task({"TF_CONFIG": json.dumps(described)})


def test_a_process_without_tf_config_is_chief_of_itself() -> None:
    alone = read_cluster_task({})
    assert alone == ClusterTask() == read_cluster_task({"TF_CONFIG": ""}) == task("worker", 0)
    assert (alone.task_type, alone.is_chief, alone.master) == ("worker", True, "")
    assert (alone.num_worker_replicas, alone.global_id_in_cluster) == (1, 0)


@pytest.mark.parametrize(
    ("task_type", "index", "global_id", "address"),
    [
        ("chief", 0, 0, "a:1"),
        ("worker", 0, 1, "b:1"),
        ("worker", "1", 2, "c:1"),
        ("ps", 1, 4, "e:1"),
    ],
)
def test_each_task_finds_its_place(
    task_type: str, index: Any, global_id: int, address: str
) -> None:
    cluster_task = task(task_type, index, CLUSTER)
    assert (cluster_task.task_type, cluster_task.task_id) == (task_type, int(index))
    assert (cluster_task.global_id_in_cluster, cluster_task.master) == (
        global_id,
        f"grpc://{address}",
    )
    assert (cluster_task.num_worker_replicas, cluster_task.num_ps_replicas) == (3, 2)
    assert cluster_task.is_chief == (task_type == "chief")


def test_a_master_is_the_chief_of_a_cluster_that_has_one() -> None:
    cluster_task = task("master", 0, {"master": ["a:1"], "worker": ["b:1"]})
    assert (cluster_task.is_chief, cluster_task.num_worker_replicas) == (True, 2)


def test_a_cluster_of_one_task_runs_in_this_process() -> None:
    assert task("chief", 0, {"chief": ["a:1"]}).master == ""


def test_tasks_may_be_numbered() -> None:
    cluster_task = task("worker", 3, {"chief": ["a:1"], "worker": {"3": "b:1"}})
    assert (cluster_task.master, cluster_task.jobs["worker"]) == ("grpc://b:1", {3: "b:1"})


def test_session_masters_are_taken_as_given() -> None:
    cluster_task = task("chief", 0, CLUSTER, session_master="one", eval_session_master="two")
    assert (cluster_task.master, cluster_task.evaluation_master) == ("one", "two")
    assert task(session_master="one").master == "one"


def test_an_evaluator_is_outside_the_cluster() -> None:
    cluster_task = task("evaluator", 0, CLUSTER, eval_session_master="two")
    assert cluster_task.is_chief is False
    assert cluster_task.global_id_in_cluster is None
    assert cluster_task.jobs == {}
    assert (cluster_task.num_worker_replicas, cluster_task.evaluation_master) == (0, "two")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"cluster": {"worker": ["a:1"]}}, 'must have one "chief" node'),
        ({"cluster": {"chief": ["a:1", "b:1"]}}, 'must have only one "chief" node. It has 2'),
        ({"cluster": {"master": ["a:1"], "chief": ["b:1"]}}, "has both"),
        ({"cluster": {**CLUSTER, "evaluator": ["f:1"]}}, "works outside"),
        ({"cluster": CLUSTER}, "task type must be set"),
        ({"cluster": CLUSTER, "task": {"type": "worker"}}, "task index must be set"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": -1}}, "is -1"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": "x"}}, "is 'x'"),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}, "has tasks 0, 1"),
        ({"cluster": CLUSTER, "task": {"type": "boss", "index": 0}}, "'boss', which is no job"),
        ({"cluster": {"chief": {"x": "a:1"}}}, "Give whole numbers"),
        (
            {"cluster": {"master": ["a:1"]}, "task": {"type": "evaluator", "index": 0}},
            "evaluates by itself",
        ),
        ({"task": {"type": "chief", "index": 0}}, "task type must be worker. It is 'chief'"),
        ({"task": {"type": "evaluator", "index": 0}}, "task type must be worker"),
        ({"task": {"index": 1}}, "task index must be 0. It is 1"),
    ],
)
def test_a_cluster_that_contradicts_itself_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        read_cluster_task({"TF_CONFIG": json.dumps(config)})


@pytest.mark.parametrize(
    "text", ["[1]", '{"service": "x"}', '{"task": 1}', '{"cluster": {"chief": "a:1"}}']
)
def test_a_part_of_a_wrong_type_is_a_type_error(text: str) -> None:
    with pytest.raises(TypeError, match="TF_CONFIG"):
        read_cluster_task({"TF_CONFIG": text})


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="TF_CONFIG='{' is no JSON"):
        read_cluster_task({"TF_CONFIG": "{"})


@pytest.mark.parametrize(
    ("master", "name", "jobs", "job"),
    [
        ("", "cores", ["cores"], None),
        ("local", None, [], None),
        ("grpc://a:1", None, [], "tpu_worker"),
        ("grpc://a:1", "cores", ["worker", "ps"], "cores"),
        ("grpc://a:1", None, ["worker"], "worker"),
        ("grpc://a:1", None, ["coordinator", "worker"], "worker"),
    ],
)
def test_the_job_of_the_tpu_workers_follows_from_the_cluster(
    master: str, name: str | None, jobs: list[str], job: str | None
) -> None:
    assert infer_tpu_job_name(master, name, jobs) == job


@pytest.mark.parametrize("jobs", [["tpu_worker"], ["a", "b"], ["a", "b", "coordinator"]])
def test_a_cluster_that_leaves_the_tpu_workers_open_is_refused(jobs: list[str]) -> None:
    with pytest.raises(InvalidSetting, match="Give TPUConfig tpu_job_name|or give"):
        infer_tpu_job_name("grpc://a:1", None, jobs)
