"""Decides how many steps one `session.run` makes: a fixed number, or as many as fit a duration."""

from collections import deque
from typing import Protocol

from trainer.config.run_config import TPUConfig

# Stands for no limit on the number of steps of a `session.run`. The loop in the graph always
# needs a number, and this is the largest int32, the dtype in which the loop counts.
UNBOUNDED = 2**31 - 1

_NUM_TIMED_RUNS = 20


class IterationPlan(Protocol):
    """Decides how many steps the next `session.run` makes, given the duration of earlier runs.

    Attributes:
      max_iterations: the largest number of steps of a `session.run`; `UNBOUNDED` without a limit.
    """

    max_iterations: int

    def next_iterations(self, steps_left: int | None) -> int:
        """Return the number of steps of the next `session.run`.

        Args:
          steps_left: number of steps until the end of training; None if unknown.
        """

    def record(self, iterations: int, seconds: float) -> None:
        """Record the number of steps and the duration in seconds of a `session.run`."""


class FixedIterations:
    """An IterationPlan with the same number of steps in each `session.run`."""

    def __init__(self, iterations: int) -> None:
        self.max_iterations = iterations

    def next_iterations(self, steps_left: int | None) -> int:
        """Return the fixed number, or the number of steps left if that is smaller."""
        return self.max_iterations if steps_left is None else min(self.max_iterations, steps_left)

    def record(self, iterations: int, seconds: float) -> None:
        """Do nothing: the number of steps does not depend on durations."""


class TimedIterations:
    """An IterationPlan in which each `session.run` takes approximately a chosen time.

    The first `session.run` has one step. The durations of the last runs determine the number of
    steps of the next run.
    """

    def __init__(self, seconds: float) -> None:
        self.max_iterations = UNBOUNDED
        self._seconds = seconds
        self._runs: deque[tuple[int, float]] = deque(maxlen=_NUM_TIMED_RUNS)

    def next_iterations(self, steps_left: int | None) -> int:
        """Return how many steps fit into the chosen time, by the mean step time of the last runs.

        The result is at least 1 and at most `steps_left`.
        """
        steps = sum(iterations for iterations, _ in self._runs)
        seconds = sum(seconds for _, seconds in self._runs)
        planned = int(self._seconds * steps / max(seconds, 1e-9)) if steps else 1
        planned = max(1, min(planned, self.max_iterations))
        return planned if steps_left is None else min(planned, steps_left)

    def record(self, iterations: int, seconds: float) -> None:
        """Record the number of steps and the duration of a `session.run`, for `next_iterations`."""
        self._runs.append((iterations, seconds))


def build_iteration_plan(config: TPUConfig) -> IterationPlan:
    """Build the IterationPlan that TPUConfig.iterations_per_loop describes.

    The setting is a number of steps, or the duration of a `session.run`.
    """
    if config.loop_secs is not None:
        return TimedIterations(config.loop_secs)
    return FixedIterations(int(config.iterations_per_loop))


def fixed_iterations(config: TPUConfig) -> int:
    """Return the number of steps of a loop in an evaluation on a TPU.

    The number is TPUConfig.iterations_per_loop, or 1 if iterations_per_loop is a duration.
    """
    return 1 if config.loop_secs is not None else int(config.iterations_per_loop)
