"""Runs a TensorFlow cluster whose processes are the hosts of one emulated TPU.

All processes start the same program, but only one process, the leader, runs it to its end. The
leader's session uses the TensorFlow servers of all processes, and places the work of each host on
the server of one process. The other processes only run their servers, from their first call of a
method such as `train` until the leader's program has ended. If the leader is lost, they wait for
its restart.
"""

import atexit
import logging
import signal
import sys
import threading
import time
from typing import Any, NoReturn

import tensorflow as tf

from tpuserve import devices
from tpuserve.errors import InvalidSetting
from trainer.config import cluster_hosts
from trainer.config.cluster_hosts import ClusterHosts, Task
from trainer.config.run_config import RunConfig
from trainer.hosts import cluster_server, program_end, stop_request, task_queue, task_waiting

logger = logging.getLogger("tensorflow.trainer")

# Name of a queue on the TensorFlow server of each process. The leader puts a number into the queue
# when its program has ended without a failure.
_END_SIGNALS = "tpuserve/end_signals"
# Name of a queue on the leader's TensorFlow server. Another process that receives a SIGTERM puts
# its number into the queue, which asks the leader to end the training.
_STOP_REQUESTS = "tpuserve/stop_requests"

# The clusters that this process leads and whose servers it has reached, each as the tuple of its
# hosts. `lead` does not wait for the servers of these clusters again.
_joined: set[tuple[Task, ...]] = set()


def find_cluster(config: RunConfig) -> ClusterHosts | None:
    """Return the cluster whose processes are the hosts of an emulated TPU.

    Returns:
      The processes. None if no TPU is emulated, or if the config has no cluster of several hosts.

    Raises:
      InvalidSetting: the cluster has jobs that cannot be hosts, such as parameter servers.
    """
    if devices.find_emulated_tpu_system() is None:
        return None
    return cluster_hosts.find_cluster_hosts(config)


def lead(hosts: ClusterHosts, config: RunConfig) -> str:
    """Start the TensorFlow server of the leader, and wait for the servers of the other processes.

    When the program ends without a failure, the other processes receive a signal to end too.

    Args:
      hosts: the processes of the cluster. This process is the leader.
      config: the settings of the run.

    Returns:
      The session target for the leader's sessions.

    Raises:
      HostMissing: the server of a host does not answer within session_creation_timeout_secs.
      InvalidSetting: this process is no task of the cluster, and the config names no master.
      PortInUse: another process uses the port of this task.
    """
    target = _start_own_server(hosts, config)
    if hosts.hosts not in _joined:
        task_waiting.wait_for_tasks(hosts.others, config.session_creation_timeout_secs)
        _joined.add(hosts.hosts)
        program_end.watch()
        if hosts.own is not None:
            threading.Thread(
                target=_receive_stop_requests, args=(target, hosts), daemon=True
            ).start()
        atexit.register(_signal_end, hosts)
    return target


def serve(hosts: ClusterHosts, config: RunConfig) -> NoReturn:
    """Run the TensorFlow server of this process until the leader's program has ended.

    Then this process ends.

    Args:
      hosts: the processes of the cluster. Another process is the leader.
      config: the settings of the run.

    Raises:
      SystemExit: always. The status is 0 if the leader's program has ended without an error, or if
        the leader does not answer after this process has received a SIGTERM. The status is 1 if
        the leader could not be reached for session_creation_timeout_secs.
      PortInUse: another process uses the port of this task.
    """
    assert hosts.own is not None
    target = _start_own_server(hosts, config)
    logger.info("%s serves the program of %s", hosts.own, hosts.leader)
    has_ended = threading.Event()
    threading.Thread(
        target=_wait_for_end_signal, args=(target, hosts.own, has_ended), daemon=True
    ).start()
    has_sigterm = _watch_for_sigterm()
    is_stop_requested = False
    timeout_secs = config.session_creation_timeout_secs
    was_seen, lost_since = False, time.monotonic()
    is_lost = True
    while not has_ended.wait(task_waiting.POLL_SECS):
        if has_sigterm.is_set() and not is_stop_requested:
            is_stop_requested = True
            _request_stop(hosts)
        if not task_waiting.find_unreachable([hosts.leader]):
            if was_seen and is_lost:
                logger.info("%s is back", hosts.leader)
            was_seen, is_lost = True, False
            continue
        if is_stop_requested:
            logger.warning("%s does not answer: ending after the SIGTERM", hosts.leader)
            sys.exit()
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


def _watch_for_sigterm() -> threading.Event:
    """Install a signal handler: a first SIGTERM sets an event, and a second one ends the process.

    The first SIGTERM does not end the process, because the leader needs this process's server to
    finish the current training loop.

    Returns:
      The event. If this is not the main thread, there is no handler, and nothing sets the event.
    """
    has_arrived = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        return has_arrived

    def handle(number: int, frame: Any) -> None:
        logger.warning("SIGTERM: serving until the leader's program ends; a second one ends now")
        signal.signal(number, signal.SIG_DFL)
        has_arrived.set()

    signal.signal(signal.SIGTERM, handle)
    return has_arrived


def _request_stop(hosts: ClusterHosts) -> None:
    """Ask the leader to end training after the current loop, as if it had received a SIGTERM."""
    assert hosts.own is not None
    try:
        task_queue.send(hosts.leader, _STOP_REQUESTS, _tasks(hosts).index(hosts.own))
    except tf.errors.OpError as error:
        # Ignore that the leader does not answer: it has ended, or it receives a SIGTERM itself.
        logger.warning("%s does not note the SIGTERM: %s", hosts.leader, error.message)


def _receive_stop_requests(target: str, hosts: ClusterHosts) -> None:
    """Receive requests of other processes to end training; runs in a thread of the leader.

    Args:
      target: the session target of the leader's server.
      hosts: the processes of the cluster.
    """
    tasks = _tasks(hosts)
    for index in task_queue.receive(target, hosts.leader, _STOP_REQUESTS):
        logger.warning("%s got SIGTERM: training ends after this loop", tasks[index])
        stop_request.request_stop()


def _tasks(hosts: ClusterHosts) -> list[Task]:
    """Return all tasks of the cluster, in an order that is the same in every process.

    The index of a task in this list is its number in messages.
    """
    return list(dict.fromkeys((hosts.leader, *hosts.hosts)))


def _start_own_server(hosts: ClusterHosts, config: RunConfig) -> str:
    """Start the TensorFlow server of this process, and return its session target.

    A process that is no task of the cluster starts no server; it uses the config's master.

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
    # Do not pass RunConfig.session_config to the server. Its device filters would hide the other
    # hosts.
    server = cluster_server.start_server(
        config.cluster_spec, hosts.own.job, hosts.own.index, protocol=config.protocol
    )
    target: str = server.target
    return target


def _signal_end(hosts: ClusterHosts) -> None:
    """Send the other processes the signal to end, unless the program has failed.

    After a failure the other processes receive no signal, and so wait for a restart.
    """
    if program_end.has_failed():
        return
    for task in hosts.others:
        try:
            task_queue.send(task, _END_SIGNALS, 0)
        except tf.errors.OpError as error:
            # Ignore that a process does not answer, so that the others still receive the signal.
            logger.warning("%s does not note the end of the program: %s", task, error.message)


def _wait_for_end_signal(target: str, own: Task, has_ended: threading.Event) -> None:
    next(task_queue.receive(target, own, _END_SIGNALS))
    has_ended.set()
