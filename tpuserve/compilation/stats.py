"""What the TPU compiler says of one module."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileStats:
    """A compiled module in numbers. The compiler has estimated them; nothing has run.

    Attributes:
      flops: floating point operations of one run.
      bytes_moved: bytes that the operations of one run read and write.
      argument_bytes, output_bytes, temporary_bytes, code_bytes: what it takes of the HBM of a
        device, variables being arguments.
      seconds: the estimated time of one run, without the operations that follow.
      untimed_operations: how many the compiler has no time for.
      compile_seconds: how long compiling took here.
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
    """What came of compiling a module for a topology: figures, or the compiler's error."""

    figures: CompileStats | None = None
    error: str | None = None


@dataclass(frozen=True)
class CompileTarget:
    """A TPU that can be compiled for.

    Attributes:
      name: as libtpu takes it, "v5e:1x1".
      device_kind: the compiler's name for its devices.
      devices_per_chip: how many devices, each with its own program, a chip has.
    """

    name: str
    device_kind: str
    devices_per_chip: int
