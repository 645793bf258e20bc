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

logger = logging.getLogger("tensorflow.trainer")


class Reporter(Protocol):
    """Shows how far a run is."""

    def start(self, step: int) -> None:
        """The run begins after this step."""

    def update(self, step: int, loss: float, steps_per_second: float) -> None:
        """The run has come to this step."""

    def stop(self) -> None:
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

    def stop(self) -> None:
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

    def stop(self) -> None:
        """Nothing is left to say."""


def reporter(
    last_step: int | None, every_n_steps: int | None, stream: TextIO | None = None
) -> Reporter | None:
    """A bar where a person is watching, log lines where not; None where none are wanted.

    Args:
      last_step: where the run ends, if that is known.
      every_n_steps: steps between two log lines; None for silence.
      stream: where the bar would go; standard error by default.
    """
    if every_n_steps is None:
        return None
    console = Console(file=stream or sys.stderr)
    if console.is_terminal:
        return Bar(last_step, console)
    return Lines(last_step, every_n_steps)


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Tells a reporter, after each loop, how far training is; writes steps/s as a summary."""

    def __init__(
        self,
        loss: Any,
        global_step: Any,
        told: Reporter,
        summary_directory: str,
        summary_every_n_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fetches `loss` with each loop and reads `global_step` after it."""
        self._loss = loss
        self._global_step = global_step
        self._told = told
        self._summary_directory = summary_directory
        self._summary_every_n_steps = summary_every_n_steps
        self._clock = clock
        self._step, self._time = 0, 0.0
        self._next_summary = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the report where the session was restored to."""
        self._step, self._time = int(session.run(self._global_step)), self._clock()
        self._next_summary = self._step
        self._told.start(self._step)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss."""
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reports one loop."""
        step, now = int(run_context.session.run(self._global_step)), self._clock()
        steps_per_second = (step - self._step) / max(now - self._time, 1e-9)
        self._step, self._time = step, now
        self._told.update(step, float(run_values.results), steps_per_second)
        if self._summary_every_n_steps and step >= self._next_summary:
            self._next_summary = step + self._summary_every_n_steps
            scalars = {"steps_per_second": steps_per_second}
            summaries.write_scalars(self._summary_directory, scalars, step)

    def end(self, session: Any) -> None:
        """Ends the report."""
        self._told.stop()
