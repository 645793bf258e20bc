"""Reports the progress of training, evaluation and prediction: a progress bar or log lines."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
from trainer.hooks import event_files
from trainer.hooks.training_hooks import StepRangeHook

logger = logging.getLogger("tensorflow.trainer")
# The logger that tf.estimator used. Metrics are logged with this logger and in tf.estimator's
# wording, because users have scripts that search logs for these lines.
estimator_logger = logging.getLogger("tensorflow")

# The time in seconds before the first report of an evaluation or prediction. A run that takes less
# time is not reported at all.
_QUIET_SECS = 5
_SECS_BETWEEN_LINES = 10

# The progress bars that are on the screen. A second bar would overwrite the first, so an evaluation
# or a prediction draws no bar while another bar is on the screen.
_bars_drawn: list["ProgressBar"] = []


class Reporter(Protocol):
    """Reports the progress of one run: of training, an evaluation or a prediction.

    A step is a training step, or a batch of an evaluation or a prediction.
    """

    def start(self, step: int, last_step: int | None) -> None:
        """Begin the report of a run."""

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Report that the run has reached a step."""

    def close(self) -> None:
        """End the report."""


class ProgressBar:
    """A progress bar on a terminal: steps, loss, steps/s, time left.

    Args:
      unit: the plural of the counted unit, such as "steps".
    """

    def __init__(self, name: str, console: Console, unit: str = "steps") -> None:
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
        """Draw the bar, or move it to `step` if an earlier session has drawn it already."""
        if self._task is None:
            self._task = self._progress.add_task(self._name, loss="", speed="-")
            self._progress.start()
            _bars_drawn.append(self)
        self._progress.update(self._task, total=last_step, completed=step)

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Move the bar to a step.

        The arguments are those of `Reporter.update`.
        """
        assert self._task is not None
        self._progress.update(
            self._task,
            completed=step,
            loss="" if loss is None else f"  loss {loss:.4f}",
            speed=f"{steps_per_second:.1f}",
        )

    def close(self) -> None:
        """Stop drawing; the bar stays on the screen."""
        self._progress.stop()
        if self in _bars_drawn:
            _bars_drawn.remove(self)


class LogReporter:
    """Writes log lines with loss, steps/s and time left at intervals of steps, and at the end.

    Args:
      batch_size: the global batch size, in examples, from which examples/s is computed; None
        to omit examples/s.
    """

    def __init__(self, every_n_steps: int, batch_size: int | None = None) -> None:
        self._every_n_steps = every_n_steps
        self._batch_size = batch_size
        self._speed = 0.0
        self._last_step: int | None = None
        self._next_step = 0
        self._pending_line = ""

    def start(self, step: int, last_step: int | None) -> None:
        """Begin the report of a run at a step; `last_step` is the step at which the run ends."""
        self._last_step = last_step
        self._pending_line = ""
        self._next_step = step + self._every_n_steps

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Write a log line at the last step, or if enough steps have passed since the last line.

        The arguments are those of `Reporter.update`.
        """
        line = f"step = {step}" if loss is None else f"loss = {loss:.5g}, step = {step}"
        line += _format_remaining(step, self._last_step, steps_per_second)
        self._pending_line = f"{line} ({steps_per_second:.4g} steps/s)"
        self._speed = steps_per_second
        if step >= self._next_step or step == self._last_step:
            self._next_step = step + self._every_n_steps
            self.close()

    def close(self) -> None:
        """Write the log line of the last step, unless `update` has written it already."""
        if self._pending_line:
            logger.info("%s", self._pending_line)
            self._pending_line = ""
            for name, value in speed_metrics(self._speed, self._batch_size).items():
                estimator_logger.info("%s: %g", name, value)


class BarAndLogReporter:
    """Draws a progress bar on a terminal, and writes log lines to handlers that write elsewhere."""

    def __init__(self, bar: ProgressBar, lines: LogReporter) -> None:
        self._bar, self._lines = bar, lines

    def start(self, step: int, last_step: int | None) -> None:
        """Begin both reports; the arguments are those of `Reporter.start`."""
        self._bar.start(step, last_step)
        self._lines.start(step, last_step)

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Move the bar, and write a line if one is due.

        The arguments are those of `Reporter.update`.
        """
        self._bar.update(step, steps_per_second, loss)
        with _muted_terminals():
            self._lines.update(step, steps_per_second, loss)

    def close(self) -> None:
        """Stop drawing, and write the last line."""
        self._bar.close()
        with _muted_terminals():
            self._lines.close()


def _find_handlers() -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    current: logging.Logger | None = logger
    while current is not None:
        # absl's handler passes messages on to a handler that has the stream and the filters.
        handlers += [getattr(handler, "python_handler", handler) for handler in current.handlers]
        current = current.parent if current.propagate else None
    return handlers


def _writes_to_terminal(handler: logging.Handler) -> bool:
    try:
        return bool(handler.stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        # The handler has no stream, or the stream is of another kind or closed.
        return False


def _is_logged_elsewhere() -> bool:
    """Return whether messages also reach a handler that does not write to a terminal."""
    return any(
        not isinstance(handler, logging.NullHandler) and not _writes_to_terminal(handler)
        for handler in _find_handlers()
    )


@contextlib.contextmanager
def _muted_terminals() -> Iterator[None]:
    """Return a context in which the messages of this thread do not reach terminals."""
    thread = threading.get_ident()

    def is_of_other_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    handlers = [handler for handler in _find_handlers() if _writes_to_terminal(handler)]
    for handler in handlers:
        handler.addFilter(is_of_other_thread)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_of_other_thread)


class TimedLogReporter:
    """Writes a log line every 10 seconds by default: batches done, batches/s and time left.

    Args:
      unit: the plural of the counted unit, such as "batches".
    """

    def __init__(
        self,
        name: str,
        unit: str,
        every_secs: float = _SECS_BETWEEN_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._unit = name, unit
        self._every_secs = every_secs
        self._clock = clock
        self._last_step: int | None = None
        self._next_line_time = 0.0

    def start(self, step: int, last_step: int | None) -> None:
        """Begin the report of a run at a step; `last_step` is the step at which the run ends."""
        self._last_step = last_step
        self._next_line_time = self._clock() + self._every_secs

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Write a log line if enough time has passed since the last line.

        The arguments are those of `Reporter.update`.
        """
        now = self._clock()
        if now < self._next_line_time:
            return
        self._next_line_time = now + self._every_secs
        line = f"{self._name}: {step}{_format_remaining(step, self._last_step, steps_per_second)}"
        logger.info("%s (%.4g %s/s)", line, steps_per_second, self._unit)

    def close(self) -> None:
        """Do nothing: this reporter writes no line at the end of a run."""


def _format_remaining(step: int, last_step: int | None, steps_per_second: float) -> str:
    """Format the last step and the time left for a log line, such as " of 1000, 20 s left"."""
    if last_step is None:
        return ""
    if step >= last_step or steps_per_second <= 0:
        return f" of {last_step}"
    return f" of {last_step}, {(last_step - step) / steps_per_second:.0f} s left"


class NullReporter:
    """A Reporter that reports nothing."""

    def start(self, step: int, last_step: int | None) -> None:
        """Do nothing."""

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """Do nothing.

        The arguments are those of `Reporter.update`.
        """

    def close(self) -> None:
        """Do nothing."""


class DelayedReporter:
    """Drops the reports of the first seconds of a run, and passes on later reports.

    A short run therefore reports nothing.

    Args:
      quiet_secs: the length of the quiet period, in seconds. It begins at the start of the run,
        and all reports during it are dropped.
    """

    def __init__(
        self,
        reporter: Reporter,
        quiet_secs: float = _QUIET_SECS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reporter = reporter
        self._quiet_secs, self._clock = quiet_secs, clock
        # The time on `clock`, in seconds, at which the quiet period ends and `reporter` is started.
        # None before the run, and after `reporter` was started.
        self._start_time: float | None = None
        self._start_arguments: tuple[int, int | None] = (0, None)

    def start(self, step: int, last_step: int | None) -> None:
        """Begin the quiet period, during which `reporter` is not called."""
        self._start_arguments = step, last_step
        self._start_time = self._clock() + self._quiet_secs

    def update(self, step: int, steps_per_second: float, loss: float | None = None) -> None:
        """After the quiet period, start `reporter` if it has not started, and pass it the step.

        The arguments are those of `Reporter.update`.
        """
        if self._start_time is not None:
            if self._clock() < self._start_time:
                return
            self._start_time = None
            self.reporter.start(*self._start_arguments)
        self.reporter.update(step, steps_per_second, loss)

    def close(self) -> None:
        """Close `reporter`, even if it was never started because the run ended too early."""
        self.reporter.close()


def speed_metrics(steps_per_second: float, batch_size: int | None) -> dict[str, float]:
    """Return the speed of training as metrics with the names that tf.estimator uses.

    Args:
      batch_size: the global batch size, in examples; None if it is unknown.
    """
    metrics = {"global_step/sec": steps_per_second}
    if batch_size is not None:
        metrics["examples/sec"] = steps_per_second * batch_size
    return metrics


def make_step_reporter(
    name: str,
    every_n_steps: int | None,
    stream: TextIO | None = None,
    batch_size: int | None = None,
) -> Reporter:
    """Make the reporter of a training run: a progress bar on a terminal, otherwise log lines.

    If a bar is drawn, and the log is also written elsewhere, such as to a file, the reporter writes
    log lines there too.

    Args:
      every_n_steps: the number of steps between two log lines; None reports nothing.
      stream: the stream of the bar; None stands for standard error.
      batch_size: the global batch size, in examples; None if it is unknown.
    """
    if every_n_steps is None:
        return NullReporter()
    console = Console(file=stream or sys.stderr)
    lines = LogReporter(every_n_steps, batch_size)
    if not console.is_terminal:
        return lines
    bar = ProgressBar(name, console)
    return BarAndLogReporter(bar, lines) if _is_logged_elsewhere() else bar


def make_batch_reporter(name: str, stream: TextIO | None = None) -> Reporter:
    """Make the reporter of an evaluation or prediction; it reports nothing if the run is short.

    The reporter draws a progress bar if the stream is a terminal that shows no other bar. Otherwise
    it writes log lines.

    Args:
      stream: the stream of the bar; None stands for standard error.
    """
    console = Console(file=stream or sys.stderr)
    if console.is_terminal and not _bars_drawn:
        return DelayedReporter(ProgressBar(name, console, unit="batches"))
    return DelayedReporter(TimedLogReporter(name, "batches"))


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports the progress of training after each training loop; writes the speed as a summary.

    Attributes:
      loss: the loss of the last step; None before the first training loop.

    Args:
      summary_every_n_steps: the minimum number of steps between two summaries, each of the
        speed since the last; None or 0 writes none. The first loop, which is slow, counts not.
      batch_size: the global batch size, in examples; None if it is unknown.
    """

    def __init__(
        self,
        loop: TrainLoop,
        start: StepRangeHook,
        reporter: Reporter,
        summary_directory: str,
        summary_every_n_steps: int | None,
        batch_size: int | None = None,
    ) -> None:
        self.loss: float | None = None
        self._batch_size = batch_size
        self._loop = loop
        self._start = start
        self._reporter = reporter
        self._summary_directory = summary_directory
        self._summary_every_n_steps = summary_every_n_steps
        self._step, self._time = 0, 0.0
        # The global step and the time of the last summary, or of the end of the first loop.
        self._measured: tuple[int, float] | None = None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Start the reporter."""
        self._step, self._measured = self._start.step, None
        self._time = time.monotonic()
        self._reporter.start(self._step, self._start.last_step)

    def before_run(self, run_context: Any) -> Any:
        """Let the next training loop fetch the global step and the loss, for `after_run`."""
        return tf.compat.v1.train.SessionRunArgs([self._loop.step, self._loop.loss])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Report the step, the speed and the loss; write the speed if a summary is due."""
        step, loss = int(run_values.results[0]), run_values.results[1]
        self.loss = loss
        now = time.monotonic()
        steps_per_second = (step - self._step) / max(now - self._time, 1e-9)
        self._step, self._time = step, now
        self._reporter.update(step, steps_per_second, float(loss))
        if self._measured is None:
            self._measured = step, now
        since, start = self._measured
        if self._summary_every_n_steps and step - since >= self._summary_every_n_steps:
            self._measured = step, now
            scalars = speed_metrics((step - since) / max(now - start, 1e-9), self._batch_size)
            event_files.write_scalars(self._summary_directory, scalars, step)


class BatchProgressHook(tf.compat.v1.train.SessionRunHook):
    """Reports after each `session.run` how many batches an evaluation or prediction has done.

    Args:
      reporter: the reporter that draws a progress bar or writes log lines.
      batches: the number of batches of the whole run; None if it is unknown.
    """

    def __init__(
        self,
        reporter: Reporter,
        batches: int | None,
        count: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._batches = batches
        self._count = count
        self._clock = clock
        self._started = 0.0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Start the reporter."""
        self._started = self._clock()
        self._reporter.start(0, self._batches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Report the number of batches that are done."""
        done = self._count()
        self._reporter.update(done, done / max(self._clock() - self._started, 1e-9))
