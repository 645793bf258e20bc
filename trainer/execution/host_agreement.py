"""Decisions that the hosts of a run make together, so that none waits for one that has stopped."""

import os
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import HostsDiffer
from trainer.execution.graceful_shutdown import GracefulShutdownHook
from trainer.execution.iterations_per_loop import IterationPlan
from trainer.hosts.group import current_group

# How often, and at which interval in seconds, the hosts look for the same checkpoint.
_ATTEMPTS, _RETRY_SECS = 10, 1.0


class StopTogetherHook(tf.compat.v1.train.SessionRunHook):
    """Stops the session on all hosts as soon as a hook stops it on one of them.

    The hook must be called after all others. It also passes a SIGTERM on: it stops all hosts after
    the same loop, and all exit gracefully.
    """

    def __init__(self, name: str, shutdown: GracefulShutdownHook | None) -> None:
        """Create the hook.

        Args:
          name: what the session does, such as "training".
          shutdown: knows whether SIGTERM has arrived; None if it is not handled.
        """
        self._name, self._shutdown = name, shutdown

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Exchange with the other hosts whether to stop."""
        is_requested = self._shutdown is not None and self._shutdown.is_requested
        answers = current_group().gather(
            f"the end of a loop of {self._name}", [run_context.stop_requested, is_requested]
        )
        if any(stops or is_shutdown for stops, is_shutdown in answers):
            run_context.request_stop()
        if self._shutdown is not None and any(is_shutdown for _, is_shutdown in answers):
            self._shutdown.is_requested = True


def stop_together(name: str, shutdown: GracefulShutdownHook | None) -> list[Any]:
    """Return a list with a `StopTogetherHook`; empty for a single host."""
    return [StopTogetherHook(name, shutdown)] if current_group().size > 1 else []


class FirstHostIterations:
    """A plan of which host 0 decides, because the plans of the hosts may depend on durations."""

    def __init__(self, plan: IterationPlan) -> None:
        """Wrap the plan of this host."""
        self.max_iterations = plan.max_iterations
        self._plan = plan

    def next_iterations(self, steps_left: int | None) -> int:
        """Return host 0's number of steps of the next `session.run`."""
        planned = self._plan.next_iterations(steps_left)
        count: int = current_group().broadcast("the number of steps of a loop", planned)
        return count

    def record(self, iterations: int, seconds: float) -> None:
        """Record the duration of a `session.run` on this host."""
        self._plan.record(iterations, seconds)


def agree_on_plan(plan: IterationPlan) -> IterationPlan:
    """Return a plan that gives all hosts the same number of steps."""
    return FirstHostIterations(plan) if current_group().size > 1 else plan


def find_same_checkpoint(find: Callable[[], str | None], model_dir: str) -> str | None:
    """Find a checkpoint, and check that all hosts have found the same one.

    A host may see a new checkpoint later than host 0, which has saved it: network file systems
    cache directories for some seconds. So the hosts look several times.

    Args:
      find: returns the path of the checkpoint; None for none.
      model_dir: the directory of the model on this host.

    Returns:
      The path on this host; None for none.

    Raises:
      HostsDiffer: another host has found another checkpoint, or none.
    """
    checkpoint = find()
    hosts = current_group()
    if hosts.size == 1:
        return checkpoint
    for _ in range(_ATTEMPTS):
        # The paths may differ: the hosts may have mounted the same directory at different places.
        name = os.path.basename(checkpoint) if checkpoint is not None else None
        found = hosts.gather("the checkpoint to start from", [name, model_dir])
        differing = [host for host, (other, _) in enumerate(found) if other != found[0][0]]
        if not differing:
            return checkpoint
        time.sleep(_RETRY_SECS)
        checkpoint = find()
    (expected, first_directory), (other, directory) = found[0], found[differing[0]]
    raise HostsDiffer(
        f"{hosts.describe(0)} has {expected or 'no checkpoint'} in {first_directory}, and "
        f"{hosts.describe(differing[0])} has {other or 'no checkpoint'} in {directory}. Give all "
        f"hosts the same model_dir, on storage that all of them reach."
    )
