"""Reads the environment variable TF_CONFIG: the cluster, and the task of this process in it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tpuserve.errors import InvalidSetting, InvalidType
from trainer.config import host_addresses
from trainer.config.host_addresses import HostAddresses

VARIABLE = "TF_CONFIG"

# DEFAULT_TPU_JOB is the job name of the TPU workers if the cluster spec names no jobs.
DEFAULT_TPU_JOB, COORDINATOR = "tpu_worker", "coordinator"

CHIEF, MASTER, WORKER, PS, EVALUATOR = "chief", "master", "worker", "ps", "evaluator"


@dataclass(frozen=True)
class ClusterTask:
    """The task of this process in its cluster; the defaults describe a process without a cluster.

    Attributes:
      task_type: 'chief', 'master', 'worker', 'ps', 'evaluator' or another job of the cluster.
      num_worker_replicas: the number of tasks that train, including the chief; 0 for an evaluator.
      global_id_in_cluster: the index of this task among all tasks: 0 for the chief, parameter
        servers last. None for an evaluator, which is outside of the cluster.
      jobs: job name → task index → address; empty without a cluster.
      model_dir: the model directory in TF_CONFIG, or None.
      hosts: the addresses of the hosts that run one program on a TPU together; None for a single
        host.
    """

    task_type: str = WORKER
    task_id: int = 0
    is_chief: bool = True
    master: str = ""
    evaluation_master: str = ""
    num_worker_replicas: int = 1
    num_ps_replicas: int = 0
    global_id_in_cluster: int | None = 0
    jobs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    service: Mapping[str, Any] | None = None
    model_dir: str | None = None
    hosts: HostAddresses | None = None


def read_tf_config(environ: Mapping[str, str]) -> dict[str, Any]:
    """Parse the JSON in the environment variable TF_CONFIG.

    Raises:
      InvalidType: the value, its cluster, its task or its service is not a JSON object.
    """
    text = environ.get(VARIABLE) or "{}"
    try:
        config = json.loads(text)
    except ValueError as error:
        raise InvalidSetting(
            f"{VARIABLE}={text!r} is no JSON: {error}. Give an object, or unset it."
        ) from error
    if not isinstance(config, dict):
        raise InvalidType(f"{VARIABLE} is {config!r}. Give a JSON object, or unset it.")
    for key in ("cluster", "task", "service"):
        if not isinstance(config.get(key) or {}, dict):
            raise InvalidType(
                f'If "{key}" is set in {VARIABLE}, it must be a dict. It is {config[key]!r}.'
            )
    return config


def read_cluster_task(environ: Mapping[str, str], *, worker_leads: bool = False) -> ClusterTask:
    """Determine the task of this process in the cluster that TF_CONFIG describes.

    If TF_CONFIG has no cluster, other environment variables such as TPUSERVE_HOSTS can contain the
    addresses of the hosts that run one program on a TPU together.

    Args:
      worker_leads: whether the first worker is the chief of a cluster that names none.

    Raises:
      InvalidSetting: TF_CONFIG or another variable has a wrong value.
    """
    config = read_tf_config(environ)
    jobs = _parse_jobs(config)
    common = {"service": config.get("service"), "model_dir": config.get("model_dir")}
    if not jobs:
        hosts = host_addresses.read_host_addresses(environ)
        if hosts is not None:
            return _make_host_task(hosts, common)
        return _make_single_task(config, common)
    if environ.get(host_addresses.HOSTS_VARIABLE):
        raise InvalidSetting(
            f"{host_addresses.HOSTS_VARIABLE} is set, and {VARIABLE} has a cluster too. Unset one "
            f"of them."
        )
    return _make_cluster_task(config, jobs, common, worker_leads)


def infer_tpu_job_name(master: str, tpu_job_name: str | None, jobs: Sequence[str]) -> str | None:
    """Return the job name of the TPU workers; infer it from the cluster if the user set none.

    Returns:
      None if the TPU workers are this process.
    """
    if master in ("", "local"):
        return None
    if tpu_job_name is not None:
        return tpu_job_name
    if DEFAULT_TPU_JOB in jobs:
        raise InvalidSetting(
            f"The cluster has a job {DEFAULT_TPU_JOB!r}, which is not an allowed job name: it "
            f"stands for a cluster that names none. Rename it, or give TPUConfig tpu_job_name."
        )
    if not jobs:
        return DEFAULT_TPU_JOB
    workers = [job for job in jobs if job != COORDINATOR] if len(jobs) == 2 else list(jobs)
    if len(workers) != 1:
        raise InvalidSetting(
            f"Cannot infer the job of the TPU workers: the cluster has {', '.join(sorted(jobs))}. "
            f"Give TPUConfig tpu_job_name."
        )
    return workers[0]


def _make_single_task(config: dict[str, Any], common: dict[str, Any]) -> ClusterTask:
    """Build the ClusterTask of a process without a cluster."""
    task = config.get("task") or {}
    task_type, task_id = task.get("type", WORKER), task.get("index", 0)
    if task_type != WORKER:
        raise InvalidSetting(
            f'If "cluster" is not set in {VARIABLE}, task type must be {WORKER}. It is '
            f"{task_type!r}. Set the cluster, or leave the task out."
        )
    if _to_int(task_id) != 0:
        raise InvalidSetting(
            f'If "cluster" is not set in {VARIABLE}, task index must be 0. It is {task_id!r}. '
            f"Set the cluster, or leave the task out."
        )
    return ClusterTask(
        master=config.get("session_master", ""),
        evaluation_master=config.get("eval_session_master", ""),
        **common,
    )


def _make_host_task(hosts: HostAddresses, common: dict[str, Any]) -> ClusterTask:
    """Build the ClusterTask of this process on one of the hosts that run a program together."""
    return ClusterTask(
        task_id=hosts.index,
        is_chief=hosts.index == 0,
        num_worker_replicas=len(hosts.addresses),
        global_id_in_cluster=hosts.index,
        hosts=hosts,
        **common,
    )


def _make_cluster_task(
    config: dict[str, Any],
    jobs: dict[str, dict[int, str]],
    common: dict[str, Any],
    worker_leads: bool,
) -> ClusterTask:
    """Build the ClusterTask of a process whose TF_CONFIG has a cluster."""
    chief = _find_chief_type(jobs, worker_leads)
    task_type, task_id = _parse_task(config, jobs)
    if task_type == EVALUATOR:
        if chief == MASTER:
            raise InvalidSetting(
                f'{VARIABLE} has task type {EVALUATOR!r}, and its cluster a "{MASTER}" node, '
                f'which evaluates by itself. Name that node "{CHIEF}".'
            )
        # Give an evaluator no cluster: it only reads the checkpoints that the chief writes.
        return ClusterTask(
            EVALUATOR,
            task_id,
            is_chief=False,
            master=config.get("session_master", ""),
            evaluation_master=config.get("eval_session_master", ""),
            num_worker_replicas=0,
            global_id_in_cluster=None,
            **common,
        )
    return ClusterTask(
        task_type,
        task_id,
        is_chief=task_type == chief and task_id == min(jobs[chief]),
        master=config.get("session_master", _session_target(config, jobs, task_type, task_id)),
        evaluation_master=config.get("eval_session_master", ""),
        num_worker_replicas=sum(len(jobs.get(job, ())) for job in {chief, WORKER}),
        num_ps_replicas=len(jobs.get(PS, ())),
        global_id_in_cluster=_global_task_id(jobs, chief, task_type, task_id),
        jobs=jobs,
        hosts=_hosts_of_cluster(jobs, chief, task_type, task_id),
        **common,
    )


def _hosts_of_cluster(
    jobs: dict[str, dict[int, str]], chief: str, task_type: str, task_id: int
) -> HostAddresses | None:
    tasks = [
        (job, number)
        for job in dict.fromkeys((chief, WORKER))
        for number in sorted(jobs.get(job, ()))
    ]
    if len(tasks) < 2 or set(jobs) - {chief, WORKER}:
        return None
    addresses = tuple(jobs[job][number] for job, number in tasks)
    host_addresses.check_port(VARIABLE, addresses[0])
    return HostAddresses(tasks.index((task_type, task_id)), addresses)


def _parse_jobs(config: dict[str, Any]) -> dict[str, dict[int, str]]:
    """Return the jobs of the cluster in TF_CONFIG: job name → task index → address."""
    jobs: dict[str, dict[int, str]] = {}
    for job, tasks in (config.get("cluster") or {}).items():
        numbered: Any = tasks
        if isinstance(tasks, list):
            numbered = dict(enumerate(tasks))
        if not isinstance(numbered, dict) or not all(isinstance(a, str) for a in numbered.values()):
            raise InvalidType(
                f'Job {job!r} of the "cluster" in {VARIABLE} is {tasks!r}. Give a list of '
                f"addresses."
            )
        if any(_to_int(number) is None for number in numbered):
            raise InvalidSetting(
                f'Job {job!r} of the "cluster" in {VARIABLE} numbers its tasks '
                f"{', '.join(map(str, numbered))}. Give whole numbers, or a list of addresses."
            )
        jobs[job] = {int(number): address for number, address in numbered.items()}
    return jobs


def _find_chief_type(jobs: dict[str, dict[int, str]], worker_leads: bool) -> str:
    """Return the job that has the chief: "chief" or "master", or "worker" if a worker leads."""
    if MASTER in jobs and CHIEF in jobs:
        raise InvalidSetting(
            f'The "cluster" in {VARIABLE} has both a "{MASTER}" and a "{CHIEF}" node. Keep one.'
        )
    chief = MASTER if MASTER in jobs else CHIEF
    if chief not in jobs and worker_leads and jobs.get(WORKER):
        chief = WORKER
    elif chief not in jobs:
        raise InvalidSetting(
            f'If "cluster" is set in {VARIABLE}, it must have one "{CHIEF}" node. It has '
            f"{', '.join(sorted(jobs))}."
        )
    elif len(jobs[chief]) != 1:
        raise InvalidSetting(
            f'The "cluster" in {VARIABLE} must have only one "{chief}" node. It has '
            f"{len(jobs[chief])}."
        )
    if EVALUATOR in jobs:
        raise InvalidSetting(
            f'The "cluster" in {VARIABLE} has a job {EVALUATOR!r}. An evaluator works outside '
            f"the cluster: name it as the task type only."
        )
    return chief


def _parse_task(config: dict[str, Any], jobs: dict[str, dict[int, str]]) -> tuple[str, int]:
    """Return the type and the index of the task of this process."""
    task = config.get("task") or {}
    for key in ("type", "index"):
        if task.get(key) in (None, ""):
            raise InvalidSetting(
                f'If "cluster" is set in {VARIABLE}, task {key} must be set. Its task is {task}.'
            )
    task_type, task_id = task["type"], _to_int(task["index"])
    if task_id is None or task_id < 0:
        raise InvalidSetting(
            f"The index of the task in {VARIABLE} is {task['index']!r}. Give a number of at "
            f"least 0."
        )
    if task_type == EVALUATOR:
        return EVALUATOR, task_id
    if task_type not in jobs:
        raise InvalidSetting(
            f"The type of the task in {VARIABLE} is {task_type!r}, which is no job of its "
            f"cluster. Give one of {', '.join(sorted(jobs))}, or {EVALUATOR}."
        )
    if task_id not in jobs[task_type]:
        raise InvalidSetting(
            f"The index of the task in {VARIABLE} is {task_id}, and the cluster's job "
            f"{task_type!r} has tasks {', '.join(map(str, sorted(jobs[task_type])))}. Give one "
            f"of these."
        )
    return task_type, task_id


def _to_int(number: Any) -> int | None:
    if isinstance(number, bool | float):
        return None
    try:
        return int(number)
    except (TypeError, ValueError):
        return None


def _session_target(
    config: dict[str, Any], jobs: dict[str, dict[int, str]], task_type: str, task_id: int
) -> str:
    if len(jobs) == 1 and len(jobs[task_type]) == 1:
        return ""
    return f"{config.get('rpc_layer') or 'grpc'}://{jobs[task_type][task_id]}"


def _global_task_id(
    jobs: dict[str, dict[int, str]], chief: str, task_type: str, task_id: int
) -> int:
    """Return the index of a task among all tasks: the chief first, parameter servers last."""
    others = sorted(job for job in jobs if job not in (chief, PS))
    order = [chief, *others, PS]
    before = order[: order.index(task_type)]
    return task_id + sum(len(jobs.get(job, ())) for job in before)
