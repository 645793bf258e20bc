"""Defines the data about compiled modules that worker processes send to their parent process."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileStats:
    """The TPU compiler's estimates for a compiled module, which has not run.

    Attributes:
      flops: Floating point operations of one run.
      bytes_moved: Bytes that the operations of one run read and write.
      argument_bytes: Device memory (HBM) for arguments, which include the variables.
      output_bytes: Device memory for outputs.
      temporary_bytes: Device memory for temporary buffers.
      code_bytes: Device memory for the program.
      seconds: Estimated time of one run, without operations that the compiler cannot estimate.
      untimed_operations: Number of operations for which the compiler has no time estimate.
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
      device_kind: The compiler's name for the type of the devices.
      devices_per_chip: Number of devices of a chip. A chip may hold several devices (cores), each
        of which runs a program of its own.
    """

    name: str
    device_kind: str
    devices_per_chip: int
