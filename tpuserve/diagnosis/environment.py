"""Checks the environment variables that jax, libtpu and tpuserve read, for `tpuserve doctor`."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tpuserve import devices
from tpuserve.devices import jax_client
from tpuserve.diagnosis.request import Finding, RuntimeRequest, note, ok, problem

CHECK = "environment"

_NAMES = re.compile(
    r"(TPU|TPUSERVE|PJRT|JAX|LIBTPU|MEGASCALE)_\w+|XLA_FLAGS|CLOUD_TPU_TASK_ID"
    r"|ALLOW_MULTIPLE_LIBTPU_LOAD"
)
# The values of variables with such names are secrets, such as that of TPUSERVE_API_KEY.
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_VISIBLE_CHIPS = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")


def read_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that concern TPUs, such as TPU_* and JAX_*, sorted by name.

    The value of a variable with a secret is replaced by "(set)": reports of `tpuserve doctor` are
    sent to others.
    """
    return {
        name: "(set)" if name.endswith(_SECRET_NAMES) else environ[name]
        for name in sorted(environ)
        if _NAMES.fullmatch(name)
    }


def check_environment(environ: Mapping[str, str], request: RuntimeRequest) -> list[Finding]:
    """Check the environment variables that concern TPUs."""
    variables = read_variables(environ)
    shown = ", ".join(f"{name}={value}" for name, value in variables.items())
    return [
        ok(CHECK, shown or "no variable concerns TPUs"),
        *_check_runtime(request),
        *_check_jax_platforms(variables, request),
        *_check_library(variables),
        *_check_pjrt_device(variables),
        *_check_visible_chips(variables, request),
        *_check_hosts(variables, request),
    ]


def _check_runtime(request: RuntimeRequest) -> Iterable[Finding]:
    if request.has_tpu and request.runtime == devices.EMULATED:
        yield note(
            CHECK,
            "this machine has a TPU, and the environment requests an emulated TPU",
            f"Unset {devices.EMULATION_VARIABLE} and {devices.RUNTIME_VARIABLE} to use the TPU",
        )
    elif request.has_tpu and request.needs_jax and request.platform == "cpu":
        yield note(
            CHECK,
            f"this machine has a TPU, and {jax_client.PLATFORM_VARIABLE}=cpu",
            f"Unset {jax_client.PLATFORM_VARIABLE} to use the TPU",
        )
    elif request.platform == "cpu" and not request.needs_jax:
        yield note(
            CHECK,
            f"{jax_client.PLATFORM_VARIABLE}=cpu alone does not run TPU graphs on the CPU",
            f"Set {devices.RUNTIME_VARIABLE}=pjrt as well",
        )


def _check_jax_platforms(
    variables: Mapping[str, str], request: RuntimeRequest
) -> Iterable[Finding]:
    platforms = variables.get("JAX_PLATFORMS", "")
    if request.needs_jax and platforms and request.platform not in platforms.split(","):
        yield problem(
            CHECK,
            f"JAX_PLATFORMS={platforms} keeps jax from the platform {request.platform}",
            f"Unset JAX_PLATFORMS, or set {jax_client.PLATFORM_VARIABLE}={platforms.split(',')[0]}",
        )


def _check_library(variables: Mapping[str, str]) -> Iterable[Finding]:
    library = variables.get("TPU_LIBRARY_PATH", "")
    if library and not Path(library).is_file():
        yield problem(
            CHECK,
            f"TPU_LIBRARY_PATH={library} is no file",
            "Unset TPU_LIBRARY_PATH: jax finds the installed libtpu",
        )


def _check_pjrt_device(variables: Mapping[str, str]) -> Iterable[Finding]:
    if "PJRT_DEVICE" in variables:
        yield note(
            CHECK,
            f"PJRT_DEVICE={variables['PJRT_DEVICE']} is a variable of PyTorch/XLA, without effect "
            f"here",
            f"Set {jax_client.PLATFORM_VARIABLE} to tpu or cpu to choose the devices",
        )


def _check_visible_chips(
    variables: Mapping[str, str], request: RuntimeRequest
) -> Iterable[Finding]:
    for name in _VISIBLE_CHIPS:
        if request.has_tpu and name in variables:
            yield note(
                CHECK,
                f"{name}={variables[name]} restricts a process to these chips",
                f"Unset {name} to use all chips",
            )


def _check_hosts(variables: Mapping[str, str], request: RuntimeRequest) -> Iterable[Finding]:
    hosts = [name for name in variables.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]
    if len(hosts) > 1 and request.has_tpu:
        yield problem(
            CHECK,
            f"TPU_WORKER_HOSTNAMES names {len(hosts)} hosts, and tpuserve uses the chips of one "
            f"host only",
            "Create a TPU with one host, such as v5litepod-8 or v6e-8",
        )
