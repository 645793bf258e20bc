"""What is measured, on which sides, and what the ratios should be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.train.ratios import Comparison

EMULATED_CORES = 8


@dataclass(frozen=True)
class Side:
    """One way to run the program.

    Attributes:
      is_original: in the original's environment, not in this one.
      arguments: of the program, beside those of the case.
      environment: variables that are set.
    """

    is_original: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A program, the sides it runs on in turns, and what to compare."""

    title: str
    arguments: tuple[str, ...]
    sides: Mapping[str, Side]
    comparisons: tuple[Comparison, ...]

    @property
    def needs_original(self) -> bool:
        """Whether a side runs in the original's environment."""
        return any(each.is_original for each in self.sides.values())


_BOTH = {"original": Side(is_original=True), "here": Side()}
_EMULATED = {"TPUSERVE_EMULATED_TPU": str(EMULATED_CORES)}

CASES = {
    "softmax": Case(
        "softmax regression on the CPU, batch 100",
        ("--model=softmax", "--batch_size=100", "--iterations_per_loop=100", "--warmup_steps=1000"),
        _BOTH,
        (Comparison("steps_per_second", "original", "here", target=3, at_least=True),),
    ),
    "cnn": Case(
        "MNIST CNN on the CPU, batch 32",
        ("--model=cnn", "--batch_size=32", "--iterations_per_loop=40", "--warmup_steps=80"),
        _BOTH,
        (Comparison("steps_per_second", "original", "here", target=1.15, at_least=True),),
    ),
    "emulated": Case(
        f"MNIST CNN on an emulated TPU of {EMULATED_CORES} cores, global batch 128",
        ("--model=cnn", "--batch_size=128", "--iterations_per_loop=10", "--warmup_steps=20"),
        {
            "CPU": Side(),
            "emulated": Side(arguments=("--use_tpu", "--compile=no"), environment=_EMULATED),
            "compiled": Side(arguments=("--use_tpu", "--compile=yes"), environment=_EMULATED),
        },
        (
            Comparison("ms_per_step", "CPU", "emulated", target=1.25, at_least=False),
            Comparison("ms_per_step", "CPU", "compiled", target=3, at_least=False),
            Comparison("peak_memory_mb", "CPU", "emulated", target=2, at_least=False),
            Comparison("peak_memory_mb", "CPU", "compiled", target=2, at_least=False),
        ),
    ),
    "start": Case(
        "process start to first step, MNIST CNN on the CPU",
        ("--model=cnn", "--batch_size=32", "--iterations_per_loop=40", "--max_steps=1"),
        _BOTH,
        (Comparison("first_step_seconds", "original", "here", target=1, at_least=False),),
    ),
}
