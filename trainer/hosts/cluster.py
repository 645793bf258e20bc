"""The processes of a cluster that train one model in one session.

The leader, which is the chief, runs the program: its session places the work of each host on the
TensorFlow server of the host's process. The other processes only serve, until the leader's program
has ended. If the leader is lost, they wait for its restart.
"""

import atexit
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import tensorflow as tf

from tpuserve import devices
from tpuserve.errors import HostLost, HostMissing, InvalidSetting
from trainer.config import cluster_hosts
from trainer.config.cluster_hosts import ClusterHosts, Task
from trainer.config.run_config import RunConfig
from trainer.hosts import cluster_server

logger = logging.getLogger("tensorflow.trainer")

# The interval, in seconds, between two attempts to connect to tasks that do not answer.
_POLL_SECS = 0.5
# The time after which a task that does not accept a connection counts as unreachable, in seconds.
_CONNECT_SECS = 5.0
# How long, in seconds, the leader tries to tell a task that the program has ended.
_END_SIGNAL_SECS = 10.0
# Name of the queue on each task that receives an element when the leader's program has ended.
_END_SIGNALS = "tpuserve/end_signals"

# The clusters that this process has joined, each as the tuple of its hosts.
_joined: set[tuple[Task, ...]] = set()
_has_program_failed = False


def find_cluster(config: RunConfig) -> ClusterHosts | None:
    """Return the hosts of an emulated TPU whose cores are in several processes.

    Returns:
      None if no TPU is emulated, or the config has no cluster of several hosts.

    Raises:
      InvalidSetting: the cluster has jobs that cannot be hosts, such as parameter servers.
    """
    if devices.find_emulated_tpu_system() is None:
        return None
    return cluster_hosts.find_cluster_hosts(config)


def lead(hosts: ClusterHosts, config: RunConfig) -> str:
    """Start the server of the leader, and wait for those of the other hosts.

    At the end of the program, the others are told to end too, unless the program has failed.

    Returns:
      The target of the leader's sessions.

    Raises:
      HostMissing: the server of a host does not answer in session_creation_timeout_secs.
      InvalidSetting: this process is no task of the cluster, and the config names no master.
      PortInUse: another process uses the port of this task.
    """
    target = _start_own_server(hosts, config)
    if hosts.hosts not in _joined:
        wait_for_tasks(hosts.others, config.session_creation_timeout_secs)
        _joined.add(hosts.hosts)
        _note_failures()
        atexit.register(_signal_end, hosts)
    return target


def serve(hosts: ClusterHosts, config: RunConfig) -> NoReturn:
    """Serve the leader until its program has ended; then end this process.

    Raises:
      SystemExit: always. The status is 0 if the leader's program has ended without an error, and 1
        if the leader could not be reached for session_creation_timeout_secs.
      PortInUse: another process uses the port of this task.
    """
    assert hosts.own is not None
    target = _start_own_server(hosts, config)
    logger.info("%s serves the program of %s", hosts.own, hosts.leader)
    has_ended = threading.Event()
    threading.Thread(
        target=_wait_for_end_signal, args=(target, hosts.own, has_ended), daemon=True
    ).start()
    _keep_serving_after_sigterm()
    timeout_secs = config.session_creation_timeout_secs
    was_seen, lost_since = False, time.monotonic()
    is_lost = True
    while not has_ended.wait(_POLL_SECS):
        if not find_unreachable([hosts.leader]):
            if was_seen and is_lost:
                logger.info("%s is back", hosts.leader)
            was_seen, is_lost = True, False
            continue
        if not is_lost:
            is_lost, lost_since = True, time.monotonic()
            logger.warning("%s is lost: waiting %g s for its restart", hosts.leader, timeout_secs)
        if time.monotonic() - lost_since > timeout_secs:
            verb = "is lost, and was not restarted" if was_seen else "did not answer"
            sys.exit(
                f"Error: {hosts.leader} {verb} within {timeout_secs:g} s. This process, "
                f"{hosts.own}, ends. Start all processes again: training continues from the newest "
                f"checkpoint. RunConfig's session_creation_timeout_secs sets the time."
            )
    logger.info("the program of %s has ended", hosts.leader)
    sys.exit()


def _keep_serving_after_sigterm() -> None:
    """Serve on after a SIGTERM, and end at once after a second one.

    Whoever stops a cluster usually signals all of its processes. The leader then needs the others
    until it has saved a checkpoint, and tells them when its program has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def handle(number: int, frame: Any) -> None:
        logger.warning("SIGTERM: serving until the leader's program ends; a second one ends now")
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, handle)


def find_unreachable(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks whose processes accept no connection."""
    return [task for task in tasks if not _is_reachable(task)]


def wait_for_tasks(
    tasks: Sequence[Task], timeout_secs: float, error_type: type[Exception] = HostMissing
) -> None:
    """Wait until all tasks accept connections.

    Args:
      tasks: the tasks.
      timeout_secs: how long to wait, in seconds.
      error_type: the class of the error.

    Raises:
      HostMissing, or `error_type`: a task does not accept connections in time.
    """
    deadline = time.monotonic() + timeout_secs
    missing = find_unreachable(tasks)
    while missing:
        if time.monotonic() >= deadline:
            raise error_type(
                f"{' and '.join(map(str, missing))} did not answer within {timeout_secs:g} s. "
                f"Start the process of each task: training continues from the newest checkpoint. "
                f"RunConfig's session_creation_timeout_secs sets the time."
            )
        time.sleep(_POLL_SECS)
        missing = find_unreachable(missing)


def wait_for_lost(tasks: Sequence[Task], timeout_secs: float) -> None:
    """Log which tasks have been lost since the start, and wait for their restart.

    Raises:
      HostLost: a task was not restarted in time.
    """
    lost = find_unreachable(tasks)
    if lost:
        logger.warning(
            "%s is lost: waiting %g s for its restart", " and ".join(map(str, lost)), timeout_secs
        )
        wait_for_tasks(lost, timeout_secs, HostLost)
        logger.info("all hosts answer again")


def _start_own_server(hosts: ClusterHosts, config: RunConfig) -> str:
    """Start the server of this process; return its target.

    Raises:
      InvalidSetting: this process is no task of the cluster, and the config names no master.
    """
    if hosts.own is None:
        if not config.master:
            raise InvalidSetting(
                f"RunConfig has a cluster of {len(hosts.hosts)} hosts, and its resolver names "
                f"neither a master nor the task of this process. Give the resolver task_type and "
                f"task_id, or the address of a server as master."
            )
        return config.master
    # Give the server no session_config: device filters would hide the other hosts.
    server = cluster_server.start_server(
        config.cluster_spec, hosts.own.job, hosts.own.index, protocol=config.protocol
    )
    target: str = server.target
    return target


def _is_reachable(task: Task) -> bool:
    name, _, port = task.address.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), _CONNECT_SECS).close()
    except OSError:
        return False
    return True


def _note_failures() -> None:
    """Note if an error ends the program, so that the other processes wait for a restart."""
    previous = sys.excepthook

    def note(*arguments: Any) -> None:
        global _has_program_failed
        _has_program_failed = True
        previous(*arguments)

    sys.excepthook = note


def _signal_end(hosts: ClusterHosts) -> None:
    """Tell the other processes that the program has ended, unless it has failed."""
    if _has_program_failed:
        return
    for task in hosts.others:
        try:
            with _task_session(f"grpc://{task.address}", task, _END_SIGNAL_SECS) as session:
                session.run(
                    tf.raw_ops.QueueEnqueueV2(handle=_end_signal_queue(task), components=[0])
                )
        except tf.errors.OpError as error:
            # Go on to the next task, so that the other processes learn that the program has ended.
            logger.warning("%s does not note the end of the program: %s", task, error.message)


def _wait_for_end_signal(target: str, own: Task, has_ended: threading.Event) -> None:
    with _task_session(target, own) as session:
        session.run(
            tf.raw_ops.QueueDequeueV2(handle=_end_signal_queue(own), component_types=[tf.int32])
        )
    has_ended.set()


def _end_signal_queue(task: Task) -> Any:
    with tf.device(task.device):
        return tf.raw_ops.FIFOQueueV2(
            component_types=[tf.int32], shapes=[[]], shared_name=_END_SIGNALS
        )


@contextmanager
def _task_session(target: str, task: Task, timeout_secs: float = 0.0) -> Iterator[Any]:
    """Return a context with a session of a task's server, in which no other task takes part.

    All these sessions find the same queue in the server, because their states are not isolated.

    Args:
      target: the target of the session.
      task: the task.
      timeout_secs: the longest time of each operation, in seconds; 0 for no limit.
    """
    proto = tf.compat.v1.ConfigProto(
        device_filters=[f"/job:{task.job}/task:{task.index}"],
        operation_timeout_in_ms=int(1000 * timeout_secs),
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(target, config=proto) as session:
        yield session
