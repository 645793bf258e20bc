"""What to do about an error that ended a program, where its own words do not say."""

import re

from tpuserve import devices
from tpuserve.runtime import xla_errors

# Of the runtime, and of placing a graph.
_NO_KERNEL = re.compile(
    r"(?:No OpKernel was registered to support Op|Cannot assign a device for operation) "
    r"'?(?P<op>_?TPU\w+|\w*DistributedTPU\w*|(?:Infeed|Outfeed)\w+|CrossReplicaSum)\b"
)


def on(error: BaseException) -> str | None:
    """A line of advice; None where there is none to give."""
    message = str(error)
    found = _NO_KERNEL.search(message)
    if found is not None:
        hardware = devices.find_tpu_system()
        if hardware.has_tpu:
            return None
        return (
            f"the program runs {found['op']}, an op of a TPU; {hardware}. Have a TPU emulated: "
            f"tpuserve run --emulate-tpu 8 SCRIPT."
        )
    refused = xla_errors.find_unsupported_ops(message)
    if refused and devices.find_tpu_system().is_emulated:
        ops = ", ".join(f"{each.op} ({each.node})" for each in refused)
        return (
            f"a TPU's compiler has no form for {ops}. Wrap it in tpu.outside_compilation, or "
            f"compute it outside of the TPU computation."
        )
    return None
