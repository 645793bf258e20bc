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

from trainer.execution.train_loop import TrainLoop
from trainer.hooks import summaries
from trainer.hooks.training_hooks import StepRangeHook

logger = logging.getLogger("tensorflow.trainer")
# Where tf.estimator said what scripts look for in a log, in these words.
estimator_logger = logging.getLogger("tensorflow")


# Evaluations are often over before anyone wonders.
_QUIET_SECS = 5
_SECS_BETWEEN_LINES = 10

# Two bars at once would draw over each other.
_bars_drawn: list["ProgressBar"] = []


class Reporter(Protocol):
    """Shows how far a run is."""

    def start(self, step: int, last_step: int | None) -> None:
        """The run begins after a step, and ends at another, if its end is known."""

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """The run has come to this step."""

    def close(self) -> None:
        """The run is over."""


class ProgressBar:
    """A progress bar: steps, loss, steps/s, time left."""

    def __init__(self, name: str, console: Console, unit: str = "steps") -> None:
        """Draws on a console, under a name, what is counted in a unit."""
        self._name = name
        self._progress = Progress(
            TextColumn(name),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{unit}{{task.fields[loss]}}  {{task.fields[speed]}} {unit}/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=10,
        )
        self._task: TaskID | None = None

    def start(self, step: int, last_step: int | None) -> None:
        """Draws the bar."""
        if self._task is None:
            self._task = self._progress.add_task(self._name, loss="", speed="-")
            self._progress.start()
            _bars_drawn.append(self)
        self._progress.update(self._task, total=last_step, completed=step)

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Moves the bar."""
        assert self._task is not None
        self._progress.update(
            self._task,
            completed=step,
            loss="" if loss is None else f"  loss {loss:.4f}",
            speed=f"{steps_per_second:.1f}",
        )

    def close(self) -> None:
        """Leaves the bar as it is, on a line of its own."""
        self._progress.stop()
        if self in _bars_drawn:
            _bars_drawn.remove(self)


class LogReporter:
    """A log line every so many steps, and for the last: loss, steps/s, time left."""

    def __init__(self, every_n_steps: int, batch_size: int | None = None) -> None:
        """Nothing is said yet; with a batch size, in rows, examples/s are said as well."""
        self._every_n_steps = every_n_steps
        self._batch_size = batch_size
        self._speed = 0.0
        self._last_step: int | None = None
        self._next_step = 0
        self._unsaid = ""

    def start(self, step: int, last_step: int | None) -> None:
        """Counts from here."""
        self._last_step = last_step
        self._unsaid = ""
        self._next_step = step + self._every_n_steps

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Writes a line, if one is due."""
        line = f"step = {step}" if loss is None else f"loss = {loss:.5g}, step = {step}"
        line += _left(step, self._last_step, steps_per_second)
        self._unsaid = f"{line} ({steps_per_second:.4g} steps/s)"
        self._speed = steps_per_second
        if step >= self._next_step or step == self._last_step:
            self._next_step = step + self._every_n_steps
            self.close()

    def close(self) -> None:
        """Writes the line of the last step, if it is not written."""
        if self._unsaid:
            logger.info("%s", self._unsaid)
            self._unsaid = ""
            for name, value in speed_metrics(self._speed, self._batch_size).items():
                estimator_logger.info("%s: %g", name, value)


class TimedLogReporter:
    """A log line every so many seconds: batches, batches/s, time left."""

    def __init__(
        self,
        name: str,
        unit: str,
        every_secs: float = _SECS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is said yet; each line has the name of the run, and the unit it counts in."""
        self._name, self._unit = name, unit
        self._every_secs = every_secs
        self._clock = clock
        self._last_step: int | None = None
        self._next = 0.0

    def start(self, step: int, last_step: int | None) -> None:
        """Counts from here."""
        self._last_step = last_step
        self._next = self._clock() + self._every_secs

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Writes a line, if one is due."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every_secs
        line = f"{self._name}: {step}{_left(step, self._last_step, steps_per_second)}"
        logger.info("%s (%.4g %s/s)", line, steps_per_second, self._unit)

    def close(self) -> None:
        """Nothing is left to say."""


def _left(step: int, last_step: int | None, steps_per_second: float) -> str:
    if last_step is None:
        return ""
    seconds = (last_step - step) / max(steps_per_second, 1e-9)
    return f" of {last_step}" + (f", {seconds:.0f} s left" if step < last_step else "")


class NullReporter:
    """Nothing at all."""

    def start(self, step: int, last_step: int | None) -> None:
        """Says nothing."""

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Says nothing."""

    def close(self) -> None:
        """Says nothing."""


class DelayedReporter:
    """Says nothing of a run that is short, and what another reporter says of one that is not.

    Attributes:
      told: the other reporter.
    """

    def __init__(
        self,
        told: Reporter,
        quiet_secs: float = _QUIET_SECS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tells the other one after so many seconds."""
        self.told = told
        self._quiet_secs, self._clock = quiet_secs, clock
        self._due: float | None = None
        self._from: tuple[int, int | None] = (0, None)

    def start(self, step: int, last_step: int | None) -> None:
        """Waits from here."""
        self._from = step, last_step
        self._due = self._clock() + self._quiet_secs

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Passes it on, if the run has gone on long enough."""
        if self._due is not None:
            if self._clock() < self._due:
                return
            self._due = None
            self.told.start(*self._from)
        self.told.update(step, steps_per_second, loss)

    def close(self) -> None:
        """Closes the other one."""
        self.told.close()


def speed_metrics(steps_per_second: float, batch_size: int | None) -> dict[str, float]:
    """The speed under the names that tf.estimator gave it; with a batch size, of rows as well."""
    found = {"global_step/sec": steps_per_second}
    if batch_size is not None:
        found["examples/sec"] = steps_per_second * batch_size
    return found


def make_step_reporter(
    name: str,
    every_n_steps: int | None,
    stream: TextIO | None = None,
    batch_size: int | None = None,
) -> Reporter:
    """A bar where a person is watching, log lines where not.

    Args:
      name: of what is reported.
      every_n_steps: steps between two log lines; None for silence.
      stream: where the bar would go; standard error by default.
      batch_size: global, in rows; None where nobody knows.
    """
    if every_n_steps is None:
        return NullReporter()
    console = Console(file=stream or sys.stderr)
    return (
        ProgressBar(name, console)
        if console.is_terminal
        else LogReporter(every_n_steps, batch_size)
    )


def make_batch_reporter(name: str, stream: TextIO | None = None) -> Reporter:
    """The same for a run that counts batches, and that says nothing where it is short.

    Within a run that has drawn a bar, it is log lines.
    """
    console = Console(file=stream or sys.stderr)
    if console.is_terminal and not _bars_drawn:
        return DelayedReporter(ProgressBar(name, console, unit="batches"))
    return DelayedReporter(TimedLogReporter(name, "batches"))


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Tells a reporter, after each loop, how far training is; writes steps/s as a summary.

    Attributes:
      loss: of the last step; None before the first.
    """

    def __init__(
        self,
        loop: TrainLoop,
        start: StepRangeHook,
        told: Reporter,
        summary_directory: str,
        summary_every_n_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
        batch_size: int | None = None,
    ) -> None:
        """Reports from the step on that training starts after."""
        self.loss: float | None = None
        self._batch_size = batch_size
        self._loop = loop
        self._start = start
        self._told = told
        self._summary_directory = summary_directory
        self._summary_every_n_steps = summary_every_n_steps
        self._clock = clock
        self._step, self._time = 0, 0.0
        self._next_summary = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the report."""
        self._step = self._next_summary = self._start.step
        self._time = self._clock()
        self._told.start(self._step, self._start.last_step)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the step and the loss."""
        return tf.compat.v1.train.SessionRunArgs([self._loop.step, self._loop.loss])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reports one loop."""
        step, loss = int(run_values.results[0]), run_values.results[1]
        self.loss = loss
        now = self._clock()
        steps_per_second = (step - self._step) / max(now - self._time, 1e-9)
        self._step, self._time = step, now
        self._told.update(step, steps_per_second, float(loss))
        if self._summary_every_n_steps and step >= self._next_summary:
            self._next_summary = step + self._summary_every_n_steps
            scalars = speed_metrics(steps_per_second, self._batch_size)
            summaries.write_scalars(self._summary_directory, scalars, step)


class BatchProgressHook(tf.compat.v1.train.SessionRunHook):
    """Tells a reporter, after each run, how many batches are done."""

    def __init__(
        self,
        told: Reporter,
        batches: int | None,
        count: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reports from none on.

        Args:
          told: whom to tell.
          batches: how many there will be; None where nobody knows.
          count: says how many are done.
          clock: gives the time in seconds.
        """
        self._told = told
        self._batches = batches
        self._count = count
        self._clock = clock
        self._started = 0.0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the report."""
        self._started = self._clock()
        self._told.start(0, self._batches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reports one run."""
        done = self._count()
        self._told.update(done, done / max(self._clock() - self._started, 1e-9))
