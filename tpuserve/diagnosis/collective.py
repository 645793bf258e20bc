"""Checks the result of an all-reduce over the PJRT devices for `tpuserve doctor`."""

from collections.abc import Iterable

from tpuserve.diagnosis.all_reduce import AllReduce
from tpuserve.diagnosis.finding import Finding, note, ok, problem
from tpuserve.tpu_hardware.chips import TpuHardware

CHECK = "all-reduce"

_HINT = (
    "Run the command with TPU_STDERR_LOG_LEVEL=0 in the environment, and read the log of libtpu in "
    "/tmp/tpu_logs"
)


def check_all_reduce(result: AllReduce, hardware: TpuHardware) -> Iterable[Finding]:
    """Check that an all-reduce gave the right sum on each device, and that all chips took part."""
    if result.error:
        yield problem(CHECK, f"platform {result.platform}: {result.error}", _advise(result))
        return
    size = len(result.devices)
    plural = "s" if size > 1 else ""
    memory = f", {result.memory_bytes / 2**30:.1f} GiB each" if result.memory_bytes else ""
    devices = f"{size} device{plural} of the platform {result.platform} ({result.devices[0]})"
    if not result.is_correct:
        yield problem(
            CHECK,
            f"{devices} sum to {', '.join(f'{value:g}' for value in result.sums)}, not to "
            f"{size * (size + 1) // 2:g}",
            "Create the TPU VM again: a chip or a link between chips computes wrong values",
        )
        return
    runtime = f"; {result.runtime}" if result.runtime != result.platform else ""
    yield ok(CHECK, f"runs on {devices}{memory}{runtime}")
    if result.platform == "tpu" and size < hardware.num_chips:
        yield note(
            CHECK,
            f"jax uses {size} of {hardware.num_chips} chips",
            "Unset TPU_VISIBLE_CHIPS, TPU_VISIBLE_DEVICES and TPU_PROCESS_BOUNDS to use all",
        )
    elif result.platform == "cpu" and size == 1:
        yield note(
            CHECK,
            "one device sums nothing",
            "Set XLA_FLAGS=--xla_force_host_platform_device_count=8 to try 8 devices",
        )


def _advise(result: AllReduce) -> str:
    if "already in use" in result.error:
        return "Stop the process that uses the TPU, or wait until it ends"
    if "no result within" in result.error and result.platform == "tpu":
        return (
            "If the TPU has several hosts, create a TPU with a single host: it starts when each "
            "host has a process, which tpuserve does not do. Else pass a longer --timeout"
        )
    if result.platform == "tpu":
        return _HINT
    return "Run: pip install '.[pjrt]', and unset XLA_FLAGS and JAX_PLATFORMS"
