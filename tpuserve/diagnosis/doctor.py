"""Runs the checks of `tpuserve doctor`: whether this machine can run TPU graphs."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tpuserve.devices import jax_client
from tpuserve.diagnosis import environment, hardware, packages
from tpuserve.diagnosis.all_reduce import AllReduce, run_all_reduce
from tpuserve.diagnosis.request import (
    Finding,
    RuntimeRequest,
    Status,
    note,
    ok,
    problem,
    read_request,
)
from tpuserve.errors import InvalidSetting
from tpuserve.tpu_hardware.chips import (
    LOCK_FILE,
    OpenFiles,
    TpuHardware,
    find_processes,
    find_tpu_hardware,
)

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
    if result.platform == jax_client.CUDA:
        return "Run nvidia-smi, which lists the GPUs that the driver finds"
    return "Run: pip install '.[pjrt]', and unset XLA_FLAGS and JAX_PLATFORMS"


TIMEOUT_S = 180.0
"""How long the all-reduce may take, in seconds. The start of a TPU takes up to a minute."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of examining a machine, as `tpuserve doctor` prints it.

    Attributes:
      versions: the installed packages that matter for TPUs, as name → version.
      all_reduce: the result of the all-reduce; None if it did not run.
    """

    hardware: TpuHardware
    versions: Mapping[str, str]
    environment: Mapping[str, str]
    users: OpenFiles
    all_reduce: AllReduce | None
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether a run on the TPU would work: no finding has the status PROBLEM."""
        return all(finding.status is not Status.PROBLEM for finding in self.findings)


def diagnose(
    environ: Mapping[str, str] = os.environ,
    *,
    timeout_s: float = TIMEOUT_S,
    find_hardware: Callable[[], TpuHardware] = find_tpu_hardware,
) -> Diagnosis:
    """Check whether this machine can run TPU graphs.

    The checks examine the TPU chips, the installed packages, the environment variables, and the
    processes that use the TPU.

    Args:
      timeout_s: how long the all-reduce may take, in seconds.
    """
    chips = find_hardware()
    versions, tested = packages.find_versions(), packages.find_requirements()
    users = find_processes((*chips.device_files, LOCK_FILE) if chips.is_present else ())
    findings = [
        ok(
            "python",
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        ),
    ]
    try:
        request = read_request(environ, chips.is_present)
    except InvalidSetting as error:
        request = RuntimeRequest("", "", chips.is_present)
        findings.append(problem(environment.CHECK, *_split(str(error))))
    findings += hardware.check_hardware(chips, request)
    findings += packages.check_packages(versions, tested, request)
    findings += environment.check_environment(environ, request)
    if chips.is_present:
        findings += hardware.check_users(users)
    all_reduce = None
    reason = _reason_against_all_reduce(request, versions, users)
    if reason:
        findings.append(note(CHECK, *reason))
    else:
        all_reduce = run_all_reduce(request.platform, timeout_s)
        findings += check_all_reduce(all_reduce, chips)
    variables = environment.read_variables(environ)
    return Diagnosis(chips, versions, variables, users, all_reduce, tuple(findings))


def _reason_against_all_reduce(
    request: RuntimeRequest, versions: Mapping[str, str], users: OpenFiles
) -> tuple[str, ...]:
    """Return why the all-reduce, which tests the devices, cannot run on this machine."""
    if not request.platform:
        return ("not run: the environment is not valid",)
    if request.platform == "tpu" and not request.has_tpu:
        return (
            "not run: there is no TPU",
            f"Set {jax_client.PLATFORM_VARIABLE}=cpu to run it on the CPU",
        )
    if "jax" not in versions:
        return ("not run: jax is not installed",)
    if request.platform == "tpu" and users.processes:
        return ("not run: the TPU is in use",)
    return ()


def _split(text: str) -> tuple[str, str]:
    """Split a TpuserveError's message into what is wrong and what to do, at the first ". "."""
    cause, _, advice = text.partition(". ")
    return cause, advice.removesuffix(".")
