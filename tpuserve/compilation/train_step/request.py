"""Lets `TPUEstimator.train` compile the training step of a program instead of training.

`tpuserve compile --train` registers a request in this module and runs the user's program in the
same process.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tpuserve.compilation.compiler import WORKER_DIED, Compiler
from tpuserve.compilation.stats import CompileTarget
from tpuserve.compilation.train_step import worker
from tpuserve.compilation.train_step.step import SerializedStep, StepResult
from tpuserve.compilation.train_step.train_step_report import StepCompilation, TrainStepReport
from tpuserve.errors import TpuserveError

BuildStep = Callable[[CompileTarget, int], SerializedStep]
"""Builds the step of a program for a topology and a global batch size, in rows."""

_Case = tuple[CompileTarget, int]

_pending: "TrainStepRequest | None" = None


@dataclass
class TrainStepRequest:
    """A request to compile a program's training step instead of training.

    Attributes:
      batch_sizes: global batch sizes, in examples; empty for the batch size of the program.
      progress: called with the number of finished compilations, the number of all compilations, and
        a description of the current step.
      report: the results; None until the program calls `TPUEstimator.train`.
    """

    compiler: Compiler
    targets: Sequence[CompileTarget]
    batch_sizes: Sequence[int] = ()
    progress: Callable[[int, int, str], None] = lambda done, total, step: None
    report: TrainStepReport | None = field(default=None, init=False)

    def answer(self, build_step: BuildStep, default_batch_size: int) -> TrainStepReport:
        """Compile the training step for each topology and batch size; store and return the report.

        Args:
          build_step: takes a topology and a global batch size, and builds the step. If it raises
            a TpuserveError, the error is the result for this topology and batch size.
          default_batch_size: the global batch size, in examples, to use if `batch_sizes` is empty.
        """
        cases = [
            (target, size)
            for target in self.targets
            for size in self.batch_sizes or (default_batch_size,)
        ]
        steps: dict[_Case, tuple[SerializedStep, str]] = {}
        results: dict[_Case, StepResult] = {}
        for target, size in cases:
            self.progress(0, 0, f"building the step at batch size {size}")
            try:
                steps[target, size] = (build_step(target, size), target.name)
            except TpuserveError as error:
                results[target, size] = StepResult(error=str(error))

        def on_done(done: int) -> None:
            self.progress(done, len(steps), "compiling")

        on_done(0)
        results.update(_compile_steps(self.compiler, steps, on_done))
        self.report = TrainStepReport(
            tuple(StepCompilation(*case, results[case]) for case in cases)
        )
        return self.report


def _compile_steps(
    compiler: Compiler,
    steps: Mapping[_Case, tuple[SerializedStep, str]],
    on_done: Callable[[int], None],
) -> dict[_Case, StepResult]:
    finished = itertools.count(1)
    died = StepResult(error=WORKER_DIED)
    return compiler.run_jobs(
        worker.compile_step, steps, died, lambda case, result: on_done(next(finished))
    )


@contextmanager
def pending(request: TrainStepRequest) -> Iterator[None]:
    """Register a request for the duration of a `with` block.

    Inside of the block, `TPUEstimator.train` compiles the training step and does not train.
    """
    global _pending
    before, _pending = _pending, request
    try:
        yield
    finally:
        _pending = before


def find_pending() -> TrainStepRequest | None:
    """Return the pending request; None if TPUEstimator.train has to train as usual."""
    return _pending
