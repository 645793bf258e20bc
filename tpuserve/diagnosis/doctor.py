"""Runs the checks of `tpuserve doctor`: whether this machine can run TPU graphs."""

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpuserve.devices import jax_client
from tpuserve.diagnosis import collective, environment, hardware, packages
from tpuserve.diagnosis.all_reduce import AllReduce, run_all_reduce
from tpuserve.diagnosis.finding import Finding, Status, note, ok, problem
from tpuserve.diagnosis.request import RuntimeRequest, read_request
from tpuserve.errors import InvalidSetting
from tpuserve.tpu_hardware.chips import TpuHardware, find_tpu_hardware
from tpuserve.tpu_hardware.processes import LOCK_FILE, OpenFiles, find_processes

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
        findings.append(note(collective.CHECK, *reason))
    else:
        all_reduce = run_all_reduce(request.platform, timeout_s)
        findings += collective.check_all_reduce(all_reduce, chips)
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
