"""Waits, with a time limit, until the TensorFlow servers of a cluster's tasks can be reached."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tpuserve.errors import HostLost, HostMissing
from trainer.config.cluster_hosts import Task

logger = logging.getLogger("tensorflow.trainer")

# The interval, in seconds, between two attempts to connect to tasks that do not answer.
POLL_SECS = 0.5
# How long, in seconds, to wait for a task to accept a connection before it counts as unreachable.
_CONNECT_SECS = 5.0


def find_unreachable(tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks that do not accept a TCP connection."""
    return [task for task in tasks if not _is_reachable(task)]


def wait_for_tasks(
    tasks: Sequence[Task],
    timeout_secs: float,
    error_type: type[Exception] = HostMissing,
    on_poll: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all tasks accept TCP connections.

    Args:
      tasks: the tasks.
      timeout_secs: how long to wait, in seconds.
      error_type: the class of the error to raise when the time is over.
      on_poll: called between two attempts to connect; an error that it raises ends the wait.

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
        on_poll()
        time.sleep(POLL_SECS)
        missing = find_unreachable(missing)


def wait_for_lost(
    tasks: Sequence[Task], timeout_secs: float, on_poll: Callable[[], None] = lambda: None
) -> None:
    """Log which tasks do not accept connections any more, and wait for their restart.

    Args:
      tasks: the tasks.
      timeout_secs: how long to wait, in seconds.
      on_poll: called between two attempts to connect; an error that it raises ends the wait.

    Raises:
      HostLost: a task was not restarted in time.
    """
    lost = find_unreachable(tasks)
    if lost:
        logger.warning(
            "%s is lost: waiting %g s for its restart", " and ".join(map(str, lost)), timeout_secs
        )
        wait_for_tasks(lost, timeout_secs, HostLost, on_poll)
        logger.info("all hosts answer again")


def call_while_reachable(
    function: Callable[[], Any],
    tasks: Sequence[Task],
    timeout_secs: float,
    on_poll: Callable[[], None] = lambda: None,
) -> Any:
    """Call a function, but stop waiting for it if a task is lost for too long.

    The function itself may wait for the tasks without a limit, like TensorFlow's creation of a
    session. So it is called in a thread, which continues if `call_while_reachable` stops waiting.

    Args:
      function: the function to call; its result is returned.
      tasks: the tasks for which the function may wait.
      timeout_secs: how long to wait for the restart of a lost task, in seconds.
      on_poll: called at intervals; an error that it raises ends the wait.

    Raises:
      HostLost: a task was not restarted in time.
    """
    has_ended = threading.Event()
    results: list[Any] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        has_ended.set()

    threading.Thread(target=call, name="cluster session", daemon=True).start()
    while not has_ended.wait(POLL_SECS):
        on_poll()
        wait_for_lost(tasks, timeout_secs, on_poll)
    if errors:
        raise errors[0]
    return results[0]


def _is_reachable(task: Task) -> bool:
    name, _, port = task.address.rpartition(":")
    try:
        socket.create_connection((name.strip("[]"), int(port)), _CONNECT_SECS).close()
    except OSError:
        return False
    return True
