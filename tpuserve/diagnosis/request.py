"""Reads from the environment variables which runtime would run TPU graphs on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tpuserve import devices
from tpuserve.devices import jax_client


class Status(Enum):
    """The severity of a finding of `tpuserve doctor`."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One result of a check of `tpuserve doctor`.

    Attributes:
      check: the name of the check, such as "packages".
      status: OK if there is nothing to do, NOTE if the user may want to change something, PROBLEM
        if a run on a TPU would fail.
      advice: what to do, one line each; empty if there is nothing to do.
    """

    check: str
    status: Status
    message: str
    advice: tuple[str, ...] = ()


def ok(check: str, message: str) -> Finding:
    """Create a finding with the status OK: there is nothing to do."""
    return Finding(check, Status.OK, message)


def note(check: str, message: str, *advice: str) -> Finding:
    """Create a finding with the status NOTE: the user may want to change something."""
    return Finding(check, Status.NOTE, message, advice)


def problem(check: str, message: str, *advice: str) -> Finding:
    """Create a finding with the status PROBLEM: a run on a TPU would fail."""
    return Finding(check, Status.PROBLEM, message, advice)


@dataclass(frozen=True)
class RuntimeRequest:
    """The runtime that would run TPU graphs on this machine.

    Attributes:
      runtime: "pjrt" for PJRT devices, "tensorflow" for TensorFlow's own TPU runtime, "emulated"
        for an emulated TPU on the CPU, or "" if TPU graphs cannot run.
      platform: the platform of the PJRT devices, "tpu", "cpu" or "cuda"; "" if an
        environment variable has an invalid value.
    """

    runtime: str
    platform: str
    has_tpu: bool

    @property
    def needs_jax(self) -> bool:
        """Whether TPU graphs would fail without jax."""
        return self.runtime == devices.PJRT

    @property
    def needs_libtpu(self) -> bool:
        """Whether TPU graphs would fail without libtpu."""
        return self.needs_jax and self.platform == "tpu"


def read_request(environ: Mapping[str, str], has_tpu: bool) -> RuntimeRequest:
    """Return the runtime that the environment variables select for TPU graphs.

    If no variable selects a runtime, PJRT is selected on a machine with a TPU, and no runtime on
    other machines.
    """
    emulated = devices.find_emulated_tpu_system(environ)
    platform = jax_client.find_platform(environ)
    if emulated is not None:
        return RuntimeRequest(devices.EMULATED, platform, has_tpu)
    runtime = environ.get(devices.RUNTIME_VARIABLE, "").strip()
    if runtime:
        return RuntimeRequest(runtime, platform, has_tpu)
    return RuntimeRequest(devices.PJRT if has_tpu else "", platform, has_tpu)
