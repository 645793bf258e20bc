"""Results of compiling a SavedModel ahead of time, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tpuserve.compilation import chips
from tpuserve.compilation.reporting.advice import BucketPlan
from tpuserve.compilation.stats import CompileStats, CompileTarget


@dataclass(frozen=True)
class Compilation:
    """One signature at one batch size, compiled for one topology.

    Attributes:
      signature: Name of the signature.
      topology: The TPU topology that the signature was compiled for.
      batch_size: Batch size in rows.
      stats: Combined figures of all TPU computations of the signature; None if one of them does
        not compile.
      error: The compiler's message; None if all computations compile.
      computations: Number of TPU computations that the signature runs.
      is_cached: True if no computation had to be compiled in this run.
    """

    signature: str
    topology: CompileTarget
    batch_size: int
    stats: CompileStats | None
    error: str | None
    computations: int
    is_cached: bool

    @property
    def estimated_rows_per_second_per_chip(self) -> float | None:
        """Rows per second if all devices of a chip run the signature; None without an estimate."""
        if self.stats is None or self.stats.seconds <= 0:
            return None
        return self.batch_size * self.topology.devices_per_chip / self.stats.seconds

    @property
    def bound(self) -> str | None:
        """Which of "compute" and "memory" limits the speed on this chip; None if unknown.

        The resource that takes longer at the chip's published peak compute or memory bandwidth
        limits the speed.
        """
        generation = chips.find_generation(self.topology.name)
        if self.stats is None or generation is None:
            return None
        compute_seconds = self.stats.flops / generation.peak_flops
        memory_seconds = self.stats.bytes_moved / generation.hbm_bytes_per_second
        return "compute" if compute_seconds >= memory_seconds else "memory"

    @property
    def hbm_bytes(self) -> int | None:
        """Device memory that all TPU computations need together; None if one does not compile."""
        if self.stats is None:
            return None
        return (
            self.stats.argument_bytes
            + self.stats.output_bytes
            + self.stats.temporary_bytes
            + self.stats.code_bytes
        )

    @property
    def chip_bytes(self) -> int | None:
        """Memory that a chip needs if each of its devices runs the signature; None if unknown."""
        return None if self.hbm_bytes is None else self.hbm_bytes * self.topology.devices_per_chip

    @property
    def capacity_bytes(self) -> int | None:
        """Published memory of the chip; None for an unknown generation."""
        generation = chips.find_generation(self.topology.name)
        return None if generation is None else generation.hbm_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the compilation and its derived figures as data for JSON."""
        return {
            "signature": self.signature,
            "topology": self.topology.name,
            "device_kind": self.topology.device_kind,
            "batch_size": self.batch_size,
            "compiles": self.error is None,
            "error": self.error,
            "computations": self.computations,
            "cached": self.is_cached,
            "figures": None if self.stats is None else asdict(self.stats),
            "hbm_bytes": self.hbm_bytes,
            "chip_bytes": self.chip_bytes,
            "chip_capacity_bytes": self.capacity_bytes,
            "estimated_rows_per_second_per_chip": self.estimated_rows_per_second_per_chip,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class LatencyPick:
    """The smallest chip that meets a latency goal, and the largest batch size with which it does.

    Attributes:
      goal_seconds: The goal.
      compilation: The pick; None if no compilation is within the goal.
    """

    goal_seconds: float
    compilation: Compilation | None

    def to_dict(self) -> dict[str, Any]:
        """Return the pick as data for JSON."""
        pick = self.compilation
        return {
            "goal_seconds": self.goal_seconds,
            "topology": pick.topology.name if pick else None,
            "batch_size": pick.batch_size if pick else None,
            "estimated_seconds": pick.stats.seconds if pick and pick.stats else None,
        }


@dataclass(frozen=True)
class CompileAdvice:
    """Recommended batch sizes and TPU for one signature.

    Attributes:
      signature: Name of the signature.
      buckets: Recommended batch sizes; None if no batch size compiles.
      smallest_topology: Of the topologies for which all batch sizes compile, the one with the
        smallest chip; None if there is none, or if the size of the chips is not known.
      latency: The pick for a latency goal; None without a goal.
    """

    signature: str
    buckets: BucketPlan | None
    smallest_topology: str | None
    latency: LatencyPick | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the recommendations as data for JSON."""
        return {
            "signature": self.signature,
            "allowed_batch_sizes": list(self.buckets.batch_sizes) if self.buckets else None,
            "padding": self.buckets.padding if self.buckets else None,
            "smallest_topology": self.smallest_topology,
            "latency": self.latency.to_dict() if self.latency else None,
        }


@dataclass(frozen=True)
class CompileReport:
    """Result of compiling a SavedModel.

    Attributes:
      directory: Directory of the SavedModel.
      load: The request mix that the advice is for, rows → relative frequency; None if all
        request sizes are equally likely.
      compilations: Results, one for each combination of signature, topology and batch size.
      advice: Recommendations, one `CompileAdvice` for each signature.
      notes: Assumptions that the compilation made, such as replaced unknown dimensions; one
        sentence each.
    """

    directory: str
    load: Mapping[int, float] | None
    compilations: tuple[Compilation, ...]
    advice: tuple[CompileAdvice, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether each signature compiles at each batch size for each topology."""
        return all(compilation.error is None for compilation in self.compilations)

    def format_load(self) -> str:
        """Return the request mix in the form of the command's option --load, such as "1:3 8:1".

        Without a request mix, return "all sizes equally likely".
        """
        if self.load is None:
            return "all sizes equally likely"
        return " ".join(f"{rows}:{weight:g}" for rows, weight in sorted(self.load.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts, lists, strings and numbers."""
        return {
            "directory": self.directory,
            "passed": self.passed,
            "load": self.format_load(),
            "notes": list(self.notes),
            "compilations": [compilation.to_dict() for compilation in self.compilations],
            "advice": [advice.to_dict() for advice in self.advice],
        }
