"""What came of compiling a SavedModel ahead of time, as frozen data."""

from dataclasses import asdict, dataclass
from typing import Any

from tpuserve.compilation import chips
from tpuserve.compilation.reporting.advice import BucketPlan
from tpuserve.compilation.stats import CompileStats, CompileTarget


@dataclass(frozen=True)
class Compilation:
    """One signature at one batch size, compiled for one topology.

    Attributes:
      signature: its name.
      topology: what it was compiled for.
      batch_size: in rows, as requests have it.
      figures: of all TPU computations of the signature together; None where one does not compile.
      error: the compiler's message; None where it compiles.
      computations: how many programs were compiled for it.
      is_cached: whether all of this was found by an earlier run.
    """

    signature: str
    topology: CompileTarget
    batch_size: int
    figures: CompileStats | None
    error: str | None
    computations: int
    is_cached: bool

    @property
    def estimated_rows_per_second_per_chip(self) -> float | None:
        """Rows that a chip computes in a second if all its devices do nothing else."""
        if self.figures is None or self.figures.seconds <= 0:
            return None
        return self.batch_size * self.topology.devices_per_chip / self.figures.seconds

    @property
    def bound(self) -> str | None:
        """What the time goes to: "compute" or "memory", by the chip's published peaks."""
        chip = chips.find_generation(self.topology.name)
        if self.figures is None or chip is None:
            return None
        computing = self.figures.flops / chip.peak_flops
        moving = self.figures.bytes_moved / chip.hbm_bytes_per_second
        return "compute" if computing >= moving else "memory"

    @property
    def hbm_bytes(self) -> int | None:
        """What all of it takes of a device's memory."""
        if self.figures is None:
            return None
        return (
            self.figures.argument_bytes
            + self.figures.output_bytes
            + self.figures.temporary_bytes
            + self.figures.code_bytes
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with what follows from the figures."""
        return {
            "signature": self.signature,
            "topology": self.topology.name,
            "device_kind": self.topology.device_kind,
            "batch_size": self.batch_size,
            "compiles": self.error is None,
            "error": self.error,
            "computations": self.computations,
            "cached": self.is_cached,
            "figures": None if self.figures is None else asdict(self.figures),
            "hbm_bytes": self.hbm_bytes,
            "estimated_rows_per_second_per_chip": self.estimated_rows_per_second_per_chip,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class CompileAdvice:
    """What to do with a signature.

    Attributes:
      signature: its name.
      cover: the batch sizes to allow; None where no batch size compiles.
      smallest_topology: the one of the least chip on which all batch sizes compile; None where
        there is none.
    """

    signature: str
    cover: BucketPlan | None
    smallest_topology: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "signature": self.signature,
            "allowed_batch_sizes": list(self.cover.batch_sizes) if self.cover else None,
            "padding": self.cover.padding if self.cover else None,
            "smallest_topology": self.smallest_topology,
        }


@dataclass(frozen=True)
class CompileReport:
    """What came of compiling a SavedModel.

    Attributes:
      directory: the SavedModel's.
      load: what the advice is for, in words.
      compilations: one for each signature, topology and batch size.
      advice: one for each signature.
      notes: what was assumed.
    """

    directory: str
    load: str
    compilations: tuple[Compilation, ...]
    advice: tuple[CompileAdvice, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything compiles."""
        return all(each.error is None for each in self.compilations)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "directory": self.directory,
            "passed": self.passed,
            "load": self.load,
            "notes": list(self.notes),
            "compilations": [each.to_dict() for each in self.compilations],
            "advice": [each.to_dict() for each in self.advice],
        }
