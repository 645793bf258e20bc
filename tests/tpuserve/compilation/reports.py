"""Reports made by hand."""

from tpuserve.compilation.reporting.advice import BucketPlan
from tpuserve.compilation.reporting.report import Compilation, CompileAdvice, CompileReport
from tpuserve.compilation.stats import CompileStats, CompileTarget

V5E = CompileTarget("v5e:1x1", "TPU v5 lite", devices_per_chip=1)
V4 = CompileTarget("v4:2x2x1", "TPU v4", devices_per_chip=2)


def figures(*, seconds: float = 0.002, flops: float = 1e9, untimed: int = 0) -> CompileStats:
    """A megabyte of arguments, and 10 MB moved."""
    return CompileStats(flops, 1e7, 10**6, 2000, 30_000, 400_000, seconds, untimed, 0.5)


def compiled(topology: CompileTarget, batch_size: int, found: CompileStats) -> Compilation:
    """One that compiles."""
    return Compilation("serving_default", topology, batch_size, found, None, 1, is_cached=False)


def refused(topology: CompileTarget, batch_size: int, error: str) -> Compilation:
    """One that does not."""
    return Compilation("serving_default", topology, batch_size, None, error, 1, is_cached=False)


def report(*compilations: Compilation) -> CompileReport:
    """A report that advises two batch sizes."""
    advice = CompileAdvice("serving_default", BucketPlan((1, 8), 0.25), "v5e:1x1")
    return CompileReport("/models/m/1", None, compilations, (advice,), ("a note",))
