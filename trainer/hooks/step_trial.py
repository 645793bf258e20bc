"""Measures whether XLA or TensorFlow's kernels run the training steps on the CPU faster.

The measurement, called the trial, takes place during training. The faster way is then used for the
rest of the training.
"""

import logging
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import UncompilableStep
from trainer.execution.held_variables import HeldVariables
from trainer.execution.train_loop import TrainLoop
from trainer.hooks.training_hooks import StepRangeHook

logger = logging.getLogger("tensorflow.trainer")

MIN_TRIAL_RUNS = 40
"""The minimum number of `session.run` calls of a training that can have a trial of XLA."""

# The trial, which compares the speed of training steps with and without XLA, begins only after this
# many seconds of training, so that a short training has no trial.
_MIN_SECONDS = 5.0
# The trial of XLA begins only when the training has taken this many times as long as the
# translation of the step to StableHLO.
_TRANSLATIONS = 20
# The trial of XLA begins only if the remaining training will take at least this many times as long
# as the minimum time of training before the trial. Then faster steps can make up for the time that
# the trial takes.
_TIMES_LEFT = 4
# The trial of XLA ends when enough `session.run` calls have been measured: at least _MIN_RUNS calls
# that use XLA, and as many that use TensorFlow's kernels.
_MIN_RUNS, _MAX_RUNS, _MIN_MEASURED = 4, 40, 0.5
# The trial of XLA ends early if XLA is clearly slower than TensorFlow's kernels: the shortest time
# per step measured with XLA is more than _HOPELESS_SHARE times the longest time per step measured
# with the kernels. The check needs at least _MIN_HOPELESS measured runs of each kind.
_MIN_HOPELESS, _HOPELESS_SHARE = 2, 1.5
# After the trial, XLA runs all further steps if its median time per step is at most this fraction
# of the median time of TensorFlow's kernels.
_SHARE = 0.97


class StepTrial:
    """Times runs with XLA and with TensorFlow's kernels alternately, and chooses the faster way.

    A run is one `session.run`, which makes several training steps.

    Attributes:
      compiling: the duration of the first run, in seconds; None before the end of that run.
      in_xla: for each measured run with XLA, its duration divided by its number of steps, in
        seconds.
      in_kernels: for each measured run without XLA, its duration divided by its number of steps, in
        seconds.
    """

    def __init__(self) -> None:
        self.uses_xla = True
        self.is_over = False
        self.compiling: float | None = None
        self.in_xla: list[float] = []
        self.in_kernels: list[float] = []
        self._runs = 0
        self._seconds = [0.0, 0.0]

    def record(self, steps: int, seconds: float) -> None:
        """Record the duration of a `session.run`, and decide whether the next one uses XLA.

        Args:
          steps: the number of steps of the run. A run of one step is not measured: its only step is
            its last, and the last step of a `session.run` always uses TensorFlow's kernels.
        """
        if self.compiling is None:
            self.compiling = seconds
        elif steps > 1:
            (self.in_xla if self.uses_xla else self.in_kernels).append(seconds / steps)
            self._seconds[self.uses_xla] += seconds
        counted = min(len(self.in_xla), len(self.in_kernels))
        self._runs += 1
        is_enough = counted >= _MIN_RUNS and min(self._seconds) >= _MIN_MEASURED
        if is_enough or self._is_hopeless() or self._runs >= 2 * _MAX_RUNS:
            self.is_over = True
            self.uses_xla = counted > 0 and self.xla_step <= _SHARE * self.kernels_step
            return
        # Alternate in this order: TensorFlow's kernels, XLA, XLA, kernels. Half of the runs of each
        # kind then come after a run of the same kind, and half after a run of the other kind.
        self.uses_xla = self._runs % 4 in (2, 3)

    def _is_hopeless(self) -> bool:
        """Return whether XLA is so much slower than the kernels that the trial can end early."""
        if min(len(self.in_xla), len(self.in_kernels)) < _MIN_HOPELESS:
            return False
        return min(self.in_xla) > _HOPELESS_SHARE * max(self.in_kernels)

    @property
    def xla_step(self) -> float:
        """The median time per step of the measured runs with XLA, in seconds."""
        return statistics.median(self.in_xla)

    @property
    def kernels_step(self) -> float:
        """The median time per step of the measured runs without XLA, in seconds."""
        return statistics.median(self.in_kernels)


class CompiledStepHook(tf.compat.v1.train.SessionRunHook):
    """Decides before each `session.run` whether XLA or TensorFlow's kernels run the training steps.

    If the user has not forced XLA, a `StepTrial` measures both ways, and the hook then uses the
    faster one.

    Args:
      is_forced: whether XLA is always used, without a trial; False lets a trial decide.
    """

    def __init__(
        self,
        loop: TrainLoop,
        start: StepRangeHook,
        *,
        is_forced: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert loop.compiled is not None
        self._loop, self._compiled, self._start = loop, loop.compiled, start
        self._is_forced, self._clock = is_forced, clock
        self._trial: StepTrial | None = None
        # Whether the next `session.run` uses XLA. None before a trial of XLA begins, or before XLA
        # or the kernels are chosen without a trial; the kernels then run the steps.
        self._uses_xla: bool | None = None
        self._sizes: list[int] | None = None
        # Whether the next `session.run` is the first of its session.
        self._is_first_run = True
        self._step, self._started = 0, 0.0
        self._steps, self._seconds, self._wanted = 0, 0.0, _MIN_SECONDS
        self._is_checked = False
        self._variables = HeldVariables(self._compiled.find_variables())

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Record the global step of the new session; choose XLA if the user forces it.

        If the step has inputs of unknown sizes, XLA cannot compile it yet.
        """
        self._step = self._start.step
        self._is_first_run = True
        if self._trial is not None and not self._trial.is_over:
            # Begin the trial again, because XLA has to compile the step again in a new session.
            self._trial, self._uses_xla = None, None
        self._variables.forget()
        if self._is_forced and self._compiled.num_unknown_sizes == 0:
            self._force()

    def before_run(self, run_context: Any) -> Any:
        """Feed the placeholders that choose between XLA and the kernels; fetch the global step."""
        # Fetch the input sizes in each run, although only the first run's sizes are used.
        fetches = {"step": self._loop.step, "sizes": self._compiled.unknown_sizes}
        # If the previous run failed, free the old values of variables that this hook still holds in
        # memory.
        self._variables.release(run_context.session)
        feeds: dict[Any, Any] = {}
        if self._uses_xla:
            feeds = {self._compiled.uses_xla: True, self._compiled.compiled_sizes: self._sizes}
            if self._is_first_of_trial and self._compiled.can_hold_variables:
                # In the first run of a trial, use XLA only for the first step. If XLA fails in this
                # step, no variable has changed, and training can continue without XLA.
                self._variables.hold(run_context.session)
                feeds[self._compiled.xla_steps] = 1
        self._started = self._clock()
        return tf.compat.v1.train.SessionRunArgs(fetches, feeds)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Record the duration of the run, and decide whether the next run uses XLA."""
        seconds = self._clock() - self._started
        self._variables.release(run_context.session)
        results = run_values.results
        is_first, self._is_first_run = self._is_first_run, False
        steps, self._step = int(results["step"]) - self._step, int(results["step"])
        if self._sizes is None:
            # Let XLA compile the step for the input sizes of the first run's last step, because
            # nearly all other batches have the same sizes.
            self._sizes = [int(size) for size in results["sizes"]]
            if self._is_forced and self._uses_xla is None:
                self._force()
        elif self._trial is not None and not self._trial.is_over:
            self._trial.record(steps, seconds)
            self._uses_xla = self._trial.uses_xla
            if self._trial.is_over:
                _log_choice(self._trial)
        elif self._uses_xla is None and not is_first:
            # Measure how fast training is before the trial of XLA. The first run of a session is
            # not counted, because TensorFlow optimises the graph during this run.
            self._steps += steps
            self._seconds += seconds
            self._begin_trial()

    @property
    def _is_first_of_trial(self) -> bool:
        return self._trial is not None and self._trial.compiling is None

    def goes_on_after(self, error: Exception) -> bool:
        """Return whether training can go on, in TensorFlow's kernels, after a run has failed.

        Training can go on if XLA has failed in the first run of a trial, and the hook has held the
        values of the variables in this run (see `HeldVariables`).
        """
        if not (self._variables.are_held and self._compiled.is_failure_of_xla(error)):
            return False
        self._uses_xla, self._trial = False, None
        logger.info(
            "XLA fails in a training step: %s. The training goes on in TensorFlow's kernels, with "
            "the next batch.",
            self._compiled.describe_failure(error),
        )
        return True

    def _force(self) -> None:
        self._sizes = self._sizes or []
        self._compiled.check(self._sizes)
        self._uses_xla = True
        logger.info("XLA compiles the training step")

    def _begin_trial(self) -> None:
        """Begin to time steps with and without XLA, once training has taken long enough."""
        if not self._steps or self._seconds < self._wanted:
            return
        if self._seconds_left() < _TIMES_LEFT * self._wanted:
            self._uses_xla = False
            return
        if not self._is_checked:
            began = self._clock()
            obstacle = self._find_obstacle()
            if obstacle:
                logger.info("XLA does not compile the training step: %s", obstacle)
                self._uses_xla = False
                return
            self._is_checked = True
            self._wanted = max(_MIN_SECONDS, _TRANSLATIONS * (self._clock() - began))
            self._begin_trial()
            return
        self._trial = StepTrial()
        self._uses_xla = self._trial.uses_xla

    def _find_obstacle(self) -> str:
        if self._compiled.obstacle:
            return self._compiled.obstacle
        try:
            self._compiled.check(self._sizes or [])
        except UncompilableStep as error:
            return str(error)
        return ""

    def _seconds_left(self) -> float:
        """Estimate the seconds until training ends; infinity if no last step is set."""
        if self._start.last_step is None:
            return math.inf
        return (self._start.last_step - self._step) * self._seconds / self._steps


def _log_choice(trial: StepTrial) -> None:
    if not trial.in_xla or not trial.in_kernels:
        logger.info("the training step runs in TensorFlow's kernels: too few runs to compare")
        return
    logger.info(
        "a training step takes %.4g ms in XLA and %.4g ms in TensorFlow's kernels: %s (compiled "
        "in %.1f s)",
        1000 * trial.xla_step,
        1000 * trial.kernels_step,
        "XLA stays" if trial.uses_xla else "the kernels stay",
        trial.compiling,
    )
