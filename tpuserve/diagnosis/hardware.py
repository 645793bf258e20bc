"""Checks the TPU chips of this machine and the processes that use them, for `tpuserve doctor`."""

import os
from collections.abc import Iterable

from tpuserve import devices
from tpuserve.devices import jax_client
from tpuserve.diagnosis.request import Finding, RuntimeRequest, note, ok, problem
from tpuserve.tpu_hardware.chips import OpenFiles, TpuHardware

CHECK = "tpu"
USE_CHECK = "in use"

# The TPU generations that start faster with transparent huge pages of the Linux kernel, according
# to jax/_src/cloud_tpu_init.py.
_WITH_HUGE_PAGES = ("v5e", "v6e", "tpu7x")
_WITHOUT_TPU = (
    f"{devices.EMULATION_VARIABLE}=8 trains on an emulated TPU",
    "tpuserve verify and tpuserve compile check an export; tpuserve compile --train checks a "
    "program",
    f"{devices.RUNTIME_VARIABLE}=pjrt {jax_client.PLATFORM_VARIABLE}=cpu runs TPU graphs on the "
    f"CPU, through PJRT",
)


def check_hardware(hardware: TpuHardware, request: RuntimeRequest) -> Iterable[Finding]:
    """Check that the machine has TPU chips, and that this user may open their device files."""
    if not hardware.is_present:
        yield _missing_tpu(request)
        return
    if not hardware.num_chips:
        files = _join(hardware.device_files)
        yield note(
            CHECK,
            f"{files}, and no TPU chip on the PCI bus: the files may belong to other devices",
            "On a TPU VM, check that /sys is visible; elsewhere, ignore the files",
        )
    else:
        plural = "s" if hardware.num_chips > 1 else ""
        chips = f"TPU {hardware.generation}, {hardware.num_chips} chip{plural}"
        if not hardware.device_files:
            yield problem(
                CHECK,
                f"{chips}, and no device file /dev/accel* or /dev/vfio/*",
                "In a container, run it with --privileged; else create the TPU VM again",
            )
            return
        yield ok(CHECK, f"{chips}, {_join(hardware.device_files)}")
    closed = [path for path in hardware.device_files if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        yield problem(
            CHECK,
            f"this user may not open {_join(closed)}",
            "Run as a user with permission to open them, for example with sudo",
        )
    if hardware.generation in _WITH_HUGE_PAGES and not hardware.huge_pages:
        yield note(
            CHECK,
            "transparent huge pages are off, which slows the start of this TPU",
            "Run: sudo sh -c 'echo always > /sys/kernel/mm/transparent_hugepage/enabled'",
        )


def check_users(users: OpenFiles) -> Iterable[Finding]:
    """Check that no other process uses the TPU, which only one process can use at a time."""
    if users.processes:
        yield problem(
            USE_CHECK,
            f"other processes use the TPU: {', '.join(map(str, users.processes))}",
            f"Wait until they end, or stop them: kill "
            f"{' '.join(str(process.pid) for process in users.processes)}",
        )
    elif users.num_hidden:
        yield note(
            USE_CHECK,
            f"no visible process uses the TPU; {users.num_hidden} processes of other users cannot "
            f"be examined",
            "Run as root to examine them",
        )
    else:
        yield ok(USE_CHECK, "no other process uses the TPU")


def _missing_tpu(request: RuntimeRequest) -> Finding:
    summary = "no TPU: no TPU chip on the PCI bus, no /dev/accel*, no /dev/vfio/*"
    if request.needs_libtpu:
        return problem(
            CHECK,
            f"{summary}; {devices.RUNTIME_VARIABLE}=pjrt needs a TPU",
            f"Set {jax_client.PLATFORM_VARIABLE}=cpu to run on the CPU, or use a TPU VM",
        )
    return note(CHECK, f"{summary}. Without a TPU you can try:", *_WITHOUT_TPU)


def _join(paths: Iterable[object]) -> str:
    return " ".join(map(str, paths))
