"""Compile reports with hand-written figures."""

from tpuserve.compilation.compile_report import (
    BucketPlan,
    Compilation,
    CompileAdvice,
    CompileReport,
)
from tpuserve.compilation.stats import CompileStats, CompileTarget

V5E = CompileTarget("v5e:1x1", "TPU v5 lite", devices_per_chip=1)
V4 = CompileTarget("v4:2x2x1", "TPU v4", devices_per_chip=2)


def figures(*, seconds: float = 0.002, flops: float = 1e9, untimed: int = 0) -> CompileStats:
    """Return the figures of a module with 1 MB of arguments that moves 10 MB."""
    return CompileStats(flops, 1e7, 10**6, 2000, 30_000, 400_000, seconds, untimed, 0.5)


def make_compilation(topology: CompileTarget, batch_size: int, stats: CompileStats) -> Compilation:
    """Return a compilation that succeeds."""
    return Compilation("serving_default", topology, batch_size, stats, None, 1, is_cached=False)


def make_failed_compilation(topology: CompileTarget, batch_size: int, error: str) -> Compilation:
    """Return a compilation that fails."""
    return Compilation("serving_default", topology, batch_size, None, error, 1, is_cached=False)


def report(*compilations: Compilation) -> CompileReport:
    """Return a report that recommends two batch sizes."""
    advice = CompileAdvice("serving_default", BucketPlan((1, 8), 0.25), "v5e:1x1")
    return CompileReport("/models/m/1", None, compilations, (advice,), ("a note",))
