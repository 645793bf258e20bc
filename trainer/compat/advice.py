"""What to do about an error that ended a program, where its own words do not say."""

import re

from tpuserve import devices
from tpuserve.lowering.rules import op_table
from tpuserve.runtime import xla_errors

# Of the runtime, and of placing a graph.
_NO_KERNEL = re.compile(
    r"(?:No OpKernel was registered to support Op|Cannot assign a device for operation) "
    r"'?(?P<op>\w+)"
)


def get_error_advice(error: BaseException) -> str | None:
    """A line of advice; None where there is none to give."""
    message = str(error)
    ops = (match["op"] for match in _NO_KERNEL.finditer(message))
    tpu_op = next(filter(op_table.is_tpu_op, ops), None)
    if tpu_op is not None:
        hardware = devices.find_tpu_system()
        if hardware.has_tpu:
            return None
        return (
            f"the program runs {tpu_op}, an op of a TPU; {hardware}. Have a TPU emulated: "
            f"tpuserve run --emulate-tpu 8 SCRIPT."
        )
    refused = xla_errors.find_unsupported_ops(message)
    if refused and devices.find_tpu_system().is_emulated:
        unsupported = ", ".join(f"{op.op} ({op.node})" for op in refused)
        return (
            f"a TPU's compiler has no form for {unsupported}. Wrap it in tpu.outside_compilation, "
            f"or compute it outside of the TPU computation."
        )
    return None
