"""Finds the tasks of a cluster that act as the hosts of an emulated TPU.

The process of each such task emulates the TPU cores of one host.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.config import tf_config
from trainer.config.run_config import RunConfig


@dataclass(frozen=True)
class Task:
    """A task of a cluster: a process with a TensorFlow server.

    Attributes:
      job: the name of the job.
      index: the number of the task within the job.
      address: "NAME:PORT" of the server.
    """

    job: str
    index: int
    address: str

    @property
    def device(self) -> str:
        """The name of the task's CPU device."""
        return f"/job:{self.job}/task:{self.index}/device:CPU:0"

    def __str__(self) -> str:
        return f"{self.job} {self.index} ({self.address})"


@dataclass(frozen=True)
class ClusterHosts:
    """The tasks of a cluster that train one model together, in one session.

    Attributes:
      hosts: the tasks whose processes emulate TPU cores, in the order of the hosts' numbers.
      leader: the task whose process builds the graph and runs the session. The processes of the
        other tasks only run TensorFlow servers for that session.
      own: the task of this process; None if this process is outside of the cluster.
    """

    hosts: tuple[Task, ...]
    leader: Task
    own: Task | None

    @property
    def is_led_by_other(self) -> bool:
        """Whether another process runs the session, so that this process only runs a server."""
        return self.own is not None and self.own != self.leader

    @property
    def others(self) -> tuple[Task, ...]:
        """The hosts and the leader, without the task of this process."""
        return tuple(task for task in dict.fromkeys((self.leader, *self.hosts)) if task != self.own)


def find_cluster_hosts(config: RunConfig) -> ClusterHosts | None:
    """Return the tasks of a cluster that act as the hosts of an emulated TPU.

    The config's cluster resolver describes the cluster; without a resolver, TF_CONFIG does. The
    chief and the workers are the hosts. The chief is host 0 and the leader, which runs the session.

    In a cluster without a chief, the hosts are the tasks of one job, the job of the TPU workers.
    TPUConfig.tpu_job_name names this job; if it is None, the job is inferred. The leader is then
    the task of the job "coordinator" or, if there is no such job, the first host.

    Args:
      config: the settings of the run.

    Returns:
      The hosts. None if there are fewer than two hosts, if the cluster has a real TPU, or if this
      process is an evaluator, which is outside of the cluster.

    Raises:
      InvalidSetting: the cluster has parameter servers, or the job of the TPU workers cannot be
        inferred.
    """
    if config.task_type == tf_config.EVALUATOR:
        return None
    own_job: str | None
    own_index: int | None
    jobs: Mapping[str, Mapping[int, str]]
    if config.cluster is None:
        jobs, own_job, own_index = config.task.jobs, config.task_type, config.task_id
    elif _is_tpu_resolver(config.cluster):
        return None
    else:
        jobs = _jobs_of_resolver(config.cluster)
        own_job = getattr(config.cluster, "task_type", None)
        own_index = getattr(config.cluster, "task_id", None)
    if sum(map(len, jobs.values())) < 2 or own_job == tf_config.EVALUATOR:
        return None
    _check_no_parameter_servers(jobs)
    tasks = [
        Task(job, index, address)
        for job in sorted(jobs, key=lambda job: (job not in _LEADING, job))
        for index, address in sorted(jobs[job].items())
    ]
    hosts = _select_hosts(tasks, jobs, config)
    if len(hosts) < 2:
        return None
    own = [task for task in tasks if (task.job, task.index) == (own_job, own_index)]
    leader = tasks[0] if tasks[0].job in _LEADING else hosts[0]
    return ClusterHosts(hosts, leader, own[0] if own else None)


_CHIEFS = (tf_config.CHIEF, tf_config.MASTER)
_LEADING = (*_CHIEFS, tf_config.COORDINATOR)


def _select_hosts(
    tasks: list[Task], jobs: Mapping[str, Mapping[int, str]], config: RunConfig
) -> tuple[Task, ...]:
    if any(chief in jobs for chief in _CHIEFS):
        return tuple(task for task in tasks if task.job in (*_CHIEFS, tf_config.WORKER))
    name = config.tpu_config.tpu_job_name
    job = tf_config.infer_tpu_job_name("cluster", name, list(jobs))
    return tuple(task for task in tasks if task.job == job)


def _check_no_parameter_servers(jobs: Mapping[str, Any]) -> None:
    """Check that the cluster has no parameter servers.

    On an emulated TPU, parameter servers would have nothing to do: the chief holds the variables.

    Raises:
      InvalidSetting: the cluster has a job "ps".
    """
    if tf_config.PS in jobs:
        raise InvalidSetting(
            f"use_tpu=True on an emulated TPU, and the cluster has a job {tf_config.PS!r}. The "
            f"chief and the workers then train in one session, and the chief holds the variables. "
            f"Leave the parameter servers out, or give use_tpu=False to train with them."
        )


def _jobs_of_resolver(resolver: Any) -> dict[str, dict[int, str]]:
    """Return the jobs of a cluster resolver: job name → task index → address."""
    spec = resolver.cluster_spec()
    if not spec:
        return {}
    return {
        job: {index: spec.task_address(job, index) for index in spec.task_indices(job)}
        for job in spec.jobs
    }


def _is_tpu_resolver(resolver: Any) -> bool:
    """Return whether a resolver describes the workers of a real TPU."""
    return any(base.__name__ == "TPUClusterResolver" for base in type(resolver).__mro__)
