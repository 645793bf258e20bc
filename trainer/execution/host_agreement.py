"""Lets the hosts of a run decide together: from which checkpoint to start and when to stop.

If one host stopped alone, the other hosts would wait for it forever.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import HostsDiffer
from trainer.execution.graceful_shutdown import GracefulShutdownHook
from trainer.execution.train_loop import IterationPlan
from trainer.hosts.group import current_group

# The hosts look for the newest checkpoint until all of them find the same one. These are the
# maximum number of attempts, and the time between two attempts in seconds.
_ATTEMPTS, _RETRY_SECS = 10, 1.0


class StopTogetherHook(tf.compat.v1.train.SessionRunHook):
    """Stops the session on all hosts if any hook requests a stop on one of the hosts.

    This hook must be called after all other hooks, so that it sees their requests.

    Args:
      name: what the session does, such as "training".
      shutdown: the hook that records whether SIGTERM has arrived; None without such a hook.
    """

    def __init__(self, name: str, shutdown: GracefulShutdownHook | None) -> None:
        self._name, self._shutdown = name, shutdown

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Exchange requests to stop with the other hosts; stop if any host has such a request."""
        is_requested = self._shutdown is not None and self._shutdown.has_sigterm
        answers = current_group().gather(
            f"the end of a loop of {self._name}", [run_context.stop_requested, is_requested]
        )
        if any(stops or is_shutdown for stops, is_shutdown in answers):
            run_context.request_stop()
        if self._shutdown is not None and any(is_shutdown for _, is_shutdown in answers):
            self._shutdown.has_sigterm = True


def stop_together(name: str, shutdown: GracefulShutdownHook | None) -> list[Any]:
    """Return a list with a `StopTogetherHook`, or an empty list if there is only one host.

    Args:
      name: what the session does, such as "training".
      shutdown: the hook that records whether SIGTERM has arrived; None without such a hook.
    """
    return [StopTogetherHook(name, shutdown)] if current_group().size > 1 else []


class FirstHostIterations:
    """An IterationPlan by which all hosts make the number of steps that host 0 has planned.

    If each host followed a plan of its own, the numbers could differ, because a plan can depend on
    the durations of earlier runs.
    """

    def __init__(self, plan: IterationPlan) -> None:
        self.max_iterations = plan.max_iterations
        self._plan = plan

    def next_iterations(self, steps_left: int | None) -> int:
        """Return the number of steps of the next `session.run`, as host 0 has planned it."""
        planned = self._plan.next_iterations(steps_left)
        count: int = current_group().broadcast("the number of steps of a loop", planned)
        return count

    def record(self, iterations: int, seconds: float) -> None:
        """Record the duration of a `session.run` on this host."""
        self._plan.record(iterations, seconds)


def agree_on_plan(plan: IterationPlan) -> IterationPlan:
    """Wrap the plan of this host so that all hosts make the same number of steps."""
    return FirstHostIterations(plan) if current_group().size > 1 else plan


def find_same_checkpoint(find: Callable[[], str | None], model_dir: str) -> str | None:
    """Find a checkpoint, and check that all hosts have found the same one.

    A host can see a new checkpoint later than host 0, which has saved it: network file systems
    cache directories for some seconds.

    Returns:
      None if no host has found a checkpoint.

    Raises:
      HostsDiffer: after all attempts, the hosts have found different checkpoints, or only some of
        them have found one.
    """
    checkpoint = find()
    hosts = current_group()
    if hosts.size == 1:
        return checkpoint
    for _ in range(_ATTEMPTS):
        # Compare only the names of the checkpoints. Their paths can differ, because the hosts can
        # have mounted the same directory at different places.
        name = os.path.basename(checkpoint) if checkpoint is not None else None
        checkpoints = hosts.gather("the checkpoint to start from", [name, model_dir])
        differing = [
            host for host, (other, _) in enumerate(checkpoints) if other != checkpoints[0][0]
        ]
        if not differing:
            return checkpoint
        time.sleep(_RETRY_SECS)
        checkpoint = find()
    (expected, first_directory), (other, directory) = checkpoints[0], checkpoints[differing[0]]
    raise HostsDiffer(
        f"{hosts.describe(0)} has {expected or 'no checkpoint'} in {first_directory}, and "
        f"{hosts.describe(differing[0])} has {other or 'no checkpoint'} in {directory}. Give all "
        f"hosts the same model_dir, on storage that all of them reach."
    )
