"""How many steps one `session.run` makes: a number of them, or as many as fit into a time."""

from collections import deque
from typing import Protocol

from trainer.config.run_config import TPUConfig

# What an int32 can count: the loop in the graph needs a limit, and this is none.
UNBOUNDED = 2**31 - 1

_REMEMBERED_RUNS = 20


class IterationPlan(Protocol):
    """Says how many steps the next run makes, and hears how long each run took.

    Attributes:
      most: the most steps it will ever ask for; `UNBOUNDED` where it sets no limit.
    """

    most: int

    def next(self, steps_left: int | None) -> int:
        """Steps of the next run, no more than are left; None where no end is known."""

    def record(self, iterations: int, seconds: float) -> None:
        """A run has made so many steps in so many seconds."""


class FixedIterations:
    """The same number of steps in each run."""

    def __init__(self, iterations: int) -> None:
        self.most = iterations

    def next(self, steps_left: int | None) -> int:
        """The fixed number, or what is left."""
        return self.most if steps_left is None else min(self.most, steps_left)

    def record(self, iterations: int, seconds: float) -> None:
        """It does not matter."""


class TimedIterations:
    """As many steps as take a given time, judged by the last runs; the first run makes one."""

    def __init__(self, seconds: float) -> None:
        """Aims at so many seconds a run."""
        self.most = UNBOUNDED
        self._seconds = seconds
        self._runs: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED_RUNS)

    def next(self, steps_left: int | None) -> int:
        """The time over the mean duration of the steps of the last runs."""
        steps = sum(iterations for iterations, _ in self._runs)
        seconds = sum(seconds for _, seconds in self._runs)
        planned = int(self._seconds * steps / max(seconds, 1e-9)) if steps else 1
        planned = max(1, min(planned, self.most))
        return planned if steps_left is None else min(planned, steps_left)

    def record(self, iterations: int, seconds: float) -> None:
        """Remembers the run."""
        self._runs.append((iterations, seconds))


def build_iteration_plan(config: TPUConfig) -> IterationPlan:
    """The plan that a config's iterations_per_loop stands for."""
    if config.loop_secs is not None:
        return TimedIterations(config.loop_secs)
    return FixedIterations(int(config.iterations_per_loop))


def fixed_iterations(config: TPUConfig) -> int:
    """Steps of a loop where no time steers it: the number that was set, or one."""
    return 1 if config.loop_secs is not None else int(config.iterations_per_loop)
