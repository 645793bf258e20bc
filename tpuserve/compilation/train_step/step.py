"""Defines the serialized training step that is sent to a compiler process, and the result."""

from dataclasses import dataclass

from tpuserve.compilation.stats import CompileStats
from tpuserve.pjrt.step_loop import StepLayout


@dataclass(frozen=True)
class SerializedStep:
    """The training step of one replica, in a form that a process without TensorFlow can compile.

    Attributes:
      capacity: the largest number of steps in one call of the executable, which runs a loop over
        the steps. A call gets a batch for each of its steps.
    """

    module: bytes
    arguments: tuple[tuple[tuple[int, ...], str], ...]
    layout: StepLayout
    capacity: int


@dataclass(frozen=True)
class StepResult:
    """Result of compiling a step for all devices of a topology.

    Attributes:
      stats: figures of one device; None if the step does not compile. The figures of memory are
        for a whole call of the executable, which runs several steps. All others are for one step.
      aliased_bytes: device memory that arguments and outputs share: the variables, which are
        updated in place.
      reduced_bytes: bytes of the tensors that a step sums over the replicas. A sum inside a loop
        counts once, not once per iteration.
      num_all_reduces: number of all-reduces in the compiled program; None if the program cannot be
        read. The compiler may combine several sums into one all-reduce.
      error: the compiler's message; None if the step compiles.
    """

    stats: CompileStats | None = None
    aliased_bytes: int = 0
    reduced_bytes: int = 0
    num_all_reduces: int | None = None
    error: str | None = None
