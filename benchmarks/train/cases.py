"""The cases of the training benchmark: programs, the sides that run them, and target ratios."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.train.ratios import Comparison

EMULATED_CORES = 8


@dataclass(frozen=True)
class Side:
    """One way to run the program of a case.

    Attributes:
      is_original: Whether the program runs with TensorFlow 2.15 instead of tpuserve.
      arguments: Arguments of the program, in addition to the arguments of the case.
      environment: Environment variables of the program.
    """

    is_original: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A program that runs on several sides in turns, and the comparisons of the sides.

    Attributes:
      title: The title of the table.
      arguments: Arguments of the program.
      sides: The sides by name.
      comparisons: The ratios to compute.
    """

    title: str
    arguments: tuple[str, ...]
    sides: Mapping[str, Side]
    comparisons: tuple[Comparison, ...]

    @property
    def needs_original(self) -> bool:
        """Whether a side runs with TensorFlow 2.15."""
        return any(side.is_original for side in self.sides.values())


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
        {
            "original": Side(is_original=True),
            "kernels": Side(arguments=("--compile_step=no",)),
            "XLA": Side(arguments=("--compile_step=yes",)),
            # Use a warm-up that is longer than the trial of "auto", so that the chosen way is
            # measured.
            "here": Side(arguments=("--compile_step=auto", "--warmup_steps=1200")),
        },
        (
            Comparison("steps_per_second", "original", "kernels", target=0.95, at_least=True),
            Comparison("steps_per_second", "original", "XLA", target=0.95, at_least=True),
            Comparison("steps_per_second", "original", "here", target=1.2, at_least=True),
        ),
    ),
    "canned": Case(
        "DNNLinearCombinedClassifier of census incomes on the CPU, batch 128",
        ("--model=census", "--batch_size=128", "--iterations_per_loop=100", "--warmup_steps=500"),
        _BOTH,
        (Comparison("steps_per_second", "original", "here", target=1.5, at_least=True),),
    ),
    "emulated": Case(
        f"MNIST CNN on an emulated TPU of {EMULATED_CORES} cores, global batch 128",
        ("--model=cnn", "--batch_size=128", "--iterations_per_loop=10", "--warmup_steps=20"),
        {
            "CPU": Side(arguments=("--compile_step=no",)),
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
