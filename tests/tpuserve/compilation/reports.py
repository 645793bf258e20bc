"""Reports made by hand."""

from tpuserve.compilation.reporting.advice import Cover
from tpuserve.compilation.reporting.report import Advice, Compilation, Report
from tpuserve.compilation.stats import Figures, Topology

V5E = Topology("v5e:1x1", "TPU v5 lite", devices_per_chip=1)
V4 = Topology("v4:2x2x1", "TPU v4", devices_per_chip=2)


def figures(*, seconds: float = 0.002, flops: float = 1e9, untimed: int = 0) -> Figures:
    """A megabyte of arguments, and 10 MB moved."""
    return Figures(flops, 1e7, 10**6, 2000, 30_000, 400_000, seconds, untimed, 0.5)


def compiled(topology: Topology, batch_size: int, found: Figures) -> Compilation:
    """One that compiles."""
    return Compilation("serving_default", topology, batch_size, found, None, 1, is_cached=False)


def refused(topology: Topology, batch_size: int, error: str) -> Compilation:
    """One that does not."""
    return Compilation("serving_default", topology, batch_size, None, error, 1, is_cached=False)


def report(*compilations: Compilation) -> Report:
    """A report that advises two batch sizes."""
    advice = Advice("serving_default", Cover((1, 8), 0.25), "v5e:1x1")
    return Report("/models/m/1", "rows come and go", compilations, (advice,), ("a note",))
