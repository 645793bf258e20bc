"""Defines the results of compiling a SavedModel ahead of time, as frozen dataclasses."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from tpuserve.compilation import chips
from tpuserve.compilation.stats import CompileStats, CompileTarget


@dataclass(frozen=True)
class BucketPlan:
    """Recommended batch sizes, and the padding that they cause for an expected request mix.

    Attributes:
      padding: Fraction of all computed examples that is padding, 0 to 1.
    """

    batch_sizes: tuple[int, ...]
    padding: float


def uniform_load(largest: int) -> dict[int, float]:
    """Return a request mix in which all sizes from 1 example to the largest are equally likely."""
    return dict.fromkeys(range(1, largest + 1), 1.0)


def choose_batch_buckets(
    load: Mapping[int, float], candidates: Sequence[int], most: int
) -> BucketPlan:
    """Choose the batch sizes that pad an expected mix of request sizes the least.

    A request is padded to the smallest chosen batch size that has room for all of its examples.

    Args:
      load: Number of examples of a request → its relative frequency.
      candidates: Batch sizes to choose from. The largest is always chosen.
    """
    sizes = sorted(set(candidates))
    split_load = _split_oversized(load, sizes[-1])

    @cache
    def best_plan(count: int, last: int) -> tuple[float, tuple[int, ...]]:
        """Choose batch sizes for the requests of up to sizes[last] examples."""
        size = sizes[last]
        plans: list[tuple[float, tuple[int, ...]]] = [(_padded_rows(split_load, 0, size), (size,))]
        if count > 1:
            for previous in range(last):
                rows, chosen = best_plan(count - 1, previous)
                rows += _padded_rows(split_load, sizes[previous], size)
                plans.append((rows, (*chosen, size)))
        # If several choices need the same amount of padding, take the one with the fewest batch
        # sizes: each batch size costs a compilation and the memory of a program.
        return min(plans, key=lambda plan: (plan[0], len(plan[1])))

    computed_rows, batch_sizes = best_plan(most, len(sizes) - 1)
    requested_rows = sum(rows * weight for rows, weight in split_load.items())
    padding = 1 - requested_rows / computed_rows if computed_rows else 0.0
    return BucketPlan(batch_sizes, padding)


def _split_oversized(load: Mapping[int, float], largest: int) -> dict[int, float]:
    """Split the requests that are larger than the largest batch size, as a server does."""
    split_load: dict[int, float] = {}
    for rows, weight in load.items():
        full_batches, remainder = divmod(rows, largest)
        for part, times in ((largest, full_batches), (remainder, 1)):
            if part and times:
                split_load[part] = split_load.get(part, 0.0) + weight * times
    return split_load


def _padded_rows(load: Mapping[int, float], above: int, size: int) -> float:
    return sum(weight * size for rows, weight in load.items() if above < rows <= size)


@dataclass(frozen=True)
class Compilation:
    """One signature at one batch size, compiled for one topology.

    Attributes:
      stats: Combined figures of all TPU computations of the signature; None if there is an error.
      error: The message of the compiler, or of an earlier step such as the translation to
        StableHLO; None if all computations compile.
      is_cached: True if no computation was compiled for this report: each result was in the cache,
        or is an error of the translation to StableHLO.
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
        """Estimated examples per second of a chip, all of whose devices run the signature.

        None if there is no time estimate.
        """
        if self.stats is None or self.stats.seconds <= 0:
            return None
        return self.batch_size * self.topology.devices_per_chip / self.stats.seconds

    @property
    def bound(self) -> str | None:
        """The resource that limits the speed on this chip, "compute" or "memory"; None if unknown.

        It is "compute" if the operations at the chip's published peak compute take longer than the
        memory traffic at the chip's published memory bandwidth, else "memory".
        """
        generation = chips.find_generation(self.topology.name)
        if self.stats is None or generation is None:
            return None
        compute_seconds = self.stats.flops / generation.peak_flops
        memory_seconds = self.stats.bytes_moved / generation.hbm_bytes_per_second
        return "compute" if compute_seconds >= memory_seconds else "memory"

    @property
    def hbm_bytes(self) -> int | None:
        """Device memory, in bytes, that all TPU computations of the signature need together.

        None if a computation does not compile.
        """
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
        """Memory of a chip, in bytes, that is needed if each of its devices runs the signature.

        None if a computation does not compile.
        """
        return None if self.hbm_bytes is None else self.hbm_bytes * self.topology.devices_per_chip

    @property
    def capacity_bytes(self) -> int | None:
        """Published memory of the chip in bytes; None for an unknown TPU generation."""
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
    """The recommended chip and batch size for a latency goal.

    The chip is the smallest one that meets the goal at any of the compiled batch sizes. The batch
    size is the largest one at which this chip meets the goal.

    Attributes:
      goal_seconds: The longest acceptable time of a batch, in seconds.
      compilation: The result for this chip and batch size; None if no result is within the goal.
    """

    goal_seconds: float
    compilation: Compilation | None

    def to_dict(self) -> dict[str, Any]:
        """Return the recommendation as data for JSON."""
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
      smallest_topology: The topology with the smallest chip for which all batch sizes compile;
        None if there is no such topology, or if the sizes of the chips are not known.
      latency: The recommendation for a latency goal; None without a goal.
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
    """All results of compiling a SavedModel, with recommendations.

    Attributes:
      load: The request mix that the advice is for: number of examples of a request → relative
        frequency. None if all request sizes are equally likely.
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
        """Return the request mix as text: "1:3 8:1" if size 1 is 3 times as frequent as size 8.

        The form is that of the option --load of `tpuserve compile`. Without a request mix, return
        "all sizes equally likely".
        """
        if self.load is None:
            return "all sizes equally likely"
        return " ".join(f"{rows}:{weight:g}" for rows, weight in sorted(self.load.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {
            "directory": self.directory,
            "passed": self.passed,
            "load": self.format_load(),
            "notes": list(self.notes),
            "compilations": [compilation.to_dict() for compilation in self.compilations],
            "advice": [advice.to_dict() for advice in self.advice],
        }
