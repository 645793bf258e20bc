"""The training step of one replica in serialized form, for a compiler process."""

from dataclasses import dataclass

from tpuserve.compilation.stats import CompileStats
from tpuserve.pjrt.step_loop import StepLayout


@dataclass(frozen=True)
class SerializedStep:
    """A step that a process without TensorFlow can compile.

    Attributes:
      module: StableHLO in its portable form.
      arguments: shape and NumPy type of each argument of the module, in order.
      layout: the order of the arguments and the results.
      capacity: the largest number of steps in a dispatch, one call of the executable; a dispatch
        gets a batch for each of its steps.
    """

    module: bytes
    arguments: tuple[tuple[tuple[int, ...], str], ...]
    layout: StepLayout
    capacity: int


@dataclass(frozen=True)
class StepResult:
    """Result of compiling a step for all devices of a topology.

    Attributes:
      stats: figures of one device and one step; None if the step does not compile. The device
        memory is for a whole dispatch, a call that runs several steps.
      aliased_bytes: device memory that arguments and outputs share: the variables, which are
        updated in place.
      reduced_bytes: bytes of the tensors that a step sums over the replicas. A sum inside a loop
        counts once, not once per iteration.
      num_all_reduces: number of all-reduces in the compiled program, which combines several sums
        into one; None if the program cannot be read.
      error: the compiler's message; None if the step compiles.
    """

    stats: CompileStats | None = None
    aliased_bytes: int = 0
    reduced_bytes: int = 0
    num_all_reduces: int | None = None
    error: str | None = None
