"""Provides advice for users whose program runs an op that the CPU or a TPU cannot run."""

import re
from dataclasses import dataclass

from tpuserve import devices
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering.rules import op_table
from tpuserve.stablehlo import xla_errors

# Matches the error messages in which TensorFlow says that an op has no kernel, or that no device
# can run the op. The group "op" is the op's type.
_NO_KERNEL = re.compile(
    r"(?:No OpKernel was registered to support Op|Cannot assign a device for operation) "
    r"'?(?P<op>\w+)"
)


@dataclass(frozen=True)
class Advice:
    """A text that tells the user of a program what to do about an error.

    Attributes:
      replaces_traceback: whether to print the text instead of the error's tracebacks, because the
        tracebacks show only TensorFlow's code and do not help the user.
    """

    text: str
    replaces_traceback: bool = False


def get_error_advice(error: BaseException) -> Advice | None:
    """Return advice on an error about an op that the device cannot run; None for other errors."""
    message = str(error)
    if isinstance(error, UnsupportedOnTpu):
        return Advice(message, replaces_traceback=True)
    ops = (match["op"] for match in _NO_KERNEL.finditer(message))
    tpu_op = next(filter(op_table.is_tpu_op, ops), None)
    if tpu_op is not None:
        tpu_system = devices.find_tpu_system()
        if tpu_system.has_tpu:
            return None
        return Advice(
            f"the program runs {tpu_op}, which only a TPU can run; {tpu_system}. Emulate a TPU: "
            f"tpuserve run --emulate-tpu 8 SCRIPT."
        )
    unsupported_ops = xla_errors.find_unsupported_ops(message)
    if unsupported_ops and devices.find_emulated_tpu_system() is not None:
        names = ", ".join(f"{op.op} ({op.node})" for op in unsupported_ops)
        return Advice(
            f"a TPU cannot run {names}. Wrap the op in tpu.outside_compilation, or compute it "
            f"outside the TPU computation.",
            replaces_traceback=True,
        )
    return None
