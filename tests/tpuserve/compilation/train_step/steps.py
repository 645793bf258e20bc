"""Reports of training steps with hand-written figures."""

from tpuserve.compilation.stats import CompileStats, CompileTarget
from tpuserve.compilation.train_step.step import StepResult
from tpuserve.compilation.train_step.train_step_report import StepCompilation, TrainStepReport

V5E = CompileTarget("v5e:2x2", "TPU v5 lite", devices_per_chip=1)
TPU7X = CompileTarget("tpu7x:2x2x1", "TPU7x", devices_per_chip=2)

STATS = CompileStats(
    flops=1e9,
    bytes_moved=1e7,
    argument_bytes=500_000_000,
    output_bytes=400_000_000,
    temporary_bytes=900_000_000,
    code_bytes=100_000_000,
    seconds=0.002,
    untimed_operations=3,
    compile_seconds=60.0,
)
"""Figures of one device, with 300 MB of variables that are updated in place."""

COMPILED = StepResult(STATS, 300_000_000, 40_000_000, 1)


def report(*compilations: tuple[CompileTarget, int, StepResult]) -> TrainStepReport:
    """Return a report with a compilation for each (topology, batch size, result)."""
    return TrainStepReport(tuple(StepCompilation(*compilation) for compilation in compilations))
