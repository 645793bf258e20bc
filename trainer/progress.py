"""What a run says about itself: a progress bar on a terminal, plain log lines elsewhere."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

import tensorflow as tf
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from trainer import summaries
from trainer.loop import Loop

logger = logging.getLogger("tensorflow.trainer")


class Reporter(Protocol):
    """Shows how far a run is."""

    def start(self, step: int) -> None:
        """The run begins after this step."""

    def update(self, step: int, loss: float, steps_per_second: float) -> None:
        """The run has come to this step."""

    def close(self) -> None:
        """The run is over."""


class Bar:
    """A progress bar: steps, loss, steps/s, time left."""

    def __init__(self, last_step: int | None, console: Console) -> None:
        """Draws on a console; a last_step of None means that the end is not known."""
        self._last_step = last_step
        self._progress = Progress(
            TextColumn("train"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps  loss {task.fields[loss]}  {task.fields[speed]} steps/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=10,
        )
        self._task: TaskID | None = None

    def start(self, step: int) -> None:
        """Draws the bar."""
        self._task = self._progress.add_task(
            "train", total=self._last_step, completed=step, loss="-", speed="-"
        )
        self._progress.start()

    def update(self, step: int, loss: float, steps_per_second: float) -> None:
        """Moves the bar."""
        assert self._task is not None
        self._progress.update(
            self._task, completed=step, loss=f"{loss:.4f}", speed=f"{steps_per_second:.1f}"
        )

    def close(self) -> None:
        """Leaves the bar as it is, on a line of its own."""
        self._progress.stop()


class Lines:
    """A log line every so many steps: loss, steps/s, time left."""

    def __init__(self, last_step: int | None, every_n_steps: int) -> None:
        """A last_step of None means that the end is not known."""
        self._last_step = last_step
        self._every_n_steps = every_n_steps
        self._next_step = 0

    def start(self, step: int) -> None:
        """Counts from here."""
        self._next_step = step + self._every_n_steps

    def update(self, step: int, loss: float, steps_per_second: float) -> None:
        """Writes a line, if one is due."""
        if step < self._next_step and step != self._last_step:
            return
        self._next_step = step + self._every_n_steps
        line = f"loss = {loss:.5g}, step = {step}"
        if self._last_step is not None:
            left = (self._last_step - step) / steps_per_second
            line += f" of {self._last_step}, {left:.0f} s left"
        logger.info("%s (%.4g steps/s)", line, steps_per_second)

    def close(self) -> None:
        """Nothing is left to say."""


class Silence:
    """Nothing at all."""

    def start(self, step: int) -> None:
        """Says nothing."""

    def update(self, step: int, loss: float, steps_per_second: float) -> None:
        """Says nothing."""

    def close(self) -> None:
        """Says nothing."""


def reporter(
    last_step: int | None, every_n_steps: int | None, stream: TextIO | None = None
) -> Reporter:
    """A bar where a person is watching, log lines where not.

    Args:
      last_step: where the run ends, if that is known.
      every_n_steps: steps between two log lines; None for silence.
      stream: where the bar would go; standard error by default.
    """
    if every_n_steps is None:
        return Silence()
    console = Console(file=stream or sys.stderr)
    if console.is_terminal:
        return Bar(last_step, console)
    return Lines(last_step, every_n_steps)


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Tells a reporter, after each loop, how far training is; writes steps/s as a summary."""

    def __init__(
        self,
        loop: Loop,
        first_step: int,
        told: Reporter,
        summary_directory: str,
        summary_every_n_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reports from `first_step` on, the step that training starts after."""
        self._loop = loop
        self._told = told
        self._summary_directory = summary_directory
        self._summary_every_n_steps = summary_every_n_steps
        self._clock = clock
        self._step, self._time = first_step, 0.0
        self._next_summary = first_step

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the report."""
        self._time = self._clock()
        self._told.start(self._step)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the step and the loss."""
        return tf.compat.v1.train.SessionRunArgs([self._loop.step, self._loop.loss])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reports one loop."""
        step, loss = int(run_values.results[0]), float(run_values.results[1])
        now = self._clock()
        steps_per_second = (step - self._step) / max(now - self._time, 1e-9)
        self._step, self._time = step, now
        self._told.update(step, loss, steps_per_second)
        if self._summary_every_n_steps and step >= self._next_summary:
            self._next_summary = step + self._summary_every_n_steps
            scalars = {"steps_per_second": steps_per_second}
            summaries.write_scalars(self._summary_directory, scalars, step)
