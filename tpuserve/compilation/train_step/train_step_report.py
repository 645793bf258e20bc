"""Defines the results of compiling a training step ahead of time, as frozen dataclasses."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tpuserve.compilation import chips
from tpuserve.compilation.stats import CompileStats, CompileTarget
from tpuserve.compilation.train_step.step import StepResult


@dataclass(frozen=True)
class StepCompilation:
    """A training step at one batch size, compiled for one topology."""

    topology: CompileTarget
    batch_size: int
    result: StepResult

    @property
    def stats(self) -> CompileStats | None:
        """The compiler's figures for one device and one step; None if the step does not compile."""
        return self.result.stats

    @property
    def error(self) -> str | None:
        """The compiler's error message; None if the step compiles."""
        return self.result.error

    @property
    def replicas(self) -> int:
        """Number of replicas: one for each device of the topology."""
        return count_devices(self.topology)

    @property
    def hbm_bytes(self) -> int | None:
        """Memory that training needs on a chip, in bytes; None if the step does not compile."""
        if self.stats is None:
            return None
        device_bytes = (
            self.stats.argument_bytes
            + self.stats.output_bytes
            - self.result.aliased_bytes
            + self.stats.temporary_bytes
            + self.stats.code_bytes
        )
        return device_bytes * self.topology.devices_per_chip

    @property
    def hbm_fraction(self) -> float | None:
        """`hbm_bytes` as a fraction of a chip's memory; None if either is not known."""
        generation = chips.find_generation(self.topology.name)
        if self.hbm_bytes is None or generation is None:
            return None
        return self.hbm_bytes / generation.hbm_bytes

    @property
    def estimated_rows_per_second(self) -> float | None:
        """Estimated examples per second of the whole topology; None without a time estimate."""
        if self.stats is None or self.stats.seconds <= 0:
            return None
        return self.batch_size / self.stats.seconds

    @property
    def estimated_rows_per_second_per_chip(self) -> float | None:
        """Estimated examples per second of one chip; None without a time estimate."""
        rows = self.estimated_rows_per_second
        return None if rows is None else rows / chips.count_chips(self.topology.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the compilation and its derived figures as data for JSON."""
        return {
            "topology": self.topology.name,
            "device_kind": self.topology.device_kind,
            "replicas": self.replicas,
            "batch_size": self.batch_size,
            "compiles": self.error is None,
            "error": self.error,
            "figures": None if self.stats is None else asdict(self.stats),
            "aliased_bytes": self.result.aliased_bytes,
            "reduced_bytes": self.result.reduced_bytes,
            "all_reduces": self.result.num_all_reduces,
            "hbm_bytes": self.hbm_bytes,
            "hbm_fraction": self.hbm_fraction,
            "estimated_rows_per_second": self.estimated_rows_per_second,
            "estimated_rows_per_second_per_chip": self.estimated_rows_per_second_per_chip,
        }


@dataclass(frozen=True)
class TrainStepReport:
    """All results of compiling a training step."""

    compilations: tuple[StepCompilation, ...]

    @property
    def passed(self) -> bool:
        """Whether the step compiles at each batch size for each topology."""
        return all(compilation.error is None for compilation in self.compilations)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        compilations: Sequence[Any] = [compilation.to_dict() for compilation in self.compilations]
        return {"passed": self.passed, "compilations": compilations}


def count_devices(topology: CompileTarget) -> int:
    """Return the number of devices of a topology.

    It is 4 for "v5e:2x2", because a v5e chip is one device. Chips of some other generations are two
    devices.
    """
    return chips.count_chips(topology.name) * topology.devices_per_chip
