"""Defines the data about compiled modules that worker processes send to their parent process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileStats:
    """The TPU compiler's estimates for a compiled module, which has not run.

    Attributes:
      compile_seconds: Measured time of the compilation on this machine, in seconds.
    """

    flops: float
    bytes_moved: float
    argument_bytes: int
    output_bytes: int
    temporary_bytes: int
    code_bytes: int
    seconds: float
    untimed_operations: int
    compile_seconds: float


@dataclass(frozen=True)
class CompileResult:
    """Result of compiling a module for a topology.

    Attributes:
      stats: Figures of the compiled module; None if it does not compile.
      error: The compiler's message; None if the module compiles.
    """

    stats: CompileStats | None = None
    error: str | None = None


@dataclass(frozen=True)
class CompileTarget:
    """A TPU topology that the compiler can compile for.

    Attributes:
      name: Name in libtpu's notation, such as "v5e:1x1".
      devices_per_chip: Number of devices of a chip. A chip may hold several devices (cores), each
        of which runs a program of its own.
    """

    name: str
    device_kind: str
    devices_per_chip: int
