"""The devices of jax's PJRT client.

PJRT is the interface through which jax, and no longer TensorFlow, drives the TPUs of today.
"""

import importlib
import importlib.metadata
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.errors import (
    ExtraNotInstalled,
    InvalidSetting,
    TpuInUse,
    TpuNotFound,
    TpuserveError,
)
from tpuserve.tpu_hardware import chips, processes

PLATFORM_VARIABLE = "TPUSERVE_PJRT_PLATFORM"
"""The environment variable that selects the platform of the devices, "tpu" or "cpu"."""

_PLATFORMS = ("tpu", "cpu")
# A text that libtpu's error contains if another process is using the TPU.
_IN_USE = "already in use"
# The oldest version of jax that was tested, and the first version that was not.
_LOWEST, _TOO_NEW = (0, 8), (0, 11)


def find_platform(environ: Mapping[str, str] = os.environ) -> str:
    """Return the platform that TPUSERVE_PJRT_PLATFORM selects; "tpu" if the variable is unset.

    Raises:
      InvalidSetting: the variable has another value than "tpu" or "cpu".
    """
    platform = environ.get(PLATFORM_VARIABLE, "").strip() or _PLATFORMS[0]
    if platform not in _PLATFORMS:
        raise InvalidSetting(
            f"{PLATFORM_VARIABLE} is {platform!r}. Set it to {' or '.join(_PLATFORMS)}, or unset "
            f"it, which means {_PLATFORMS[0]}."
        )
    return platform


def list_devices(platform: str) -> tuple[Any, ...]:
    """Return jax's devices of a platform, and switch jax to 64-bit types.

    Variables such as the global step, and the inputs of many models, have 64-bit types, which jax
    would otherwise convert to 32 bits.

    Args:
      platform: "tpu" or "cpu".

    Raises:
      ExtraNotInstalled: jax is not installed, or has a version that was not tested.
      TpuNotFound: jax finds no device of the platform.
      TpuInUse: another process uses the TPU.
    """
    jax = _import_jax()
    if not jax.config.jax_platforms:
        # Start only this platform. By default jax starts every platform, and so occupies a TPU
        # even for a program that runs on the CPU.
        jax.config.update("jax_platforms", platform)
    jax.config.update("jax_enable_x64", True)
    try:
        return tuple(jax.local_devices(backend=platform))
    except RuntimeError as error:
        raise _explain(error, platform) from error


def _explain(error: RuntimeError, platform: str) -> TpuserveError:
    """Convert jax's error that it cannot start a platform into a TpuInUse or TpuNotFound."""
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    if _IN_USE in reason:
        users = processes.find_processes((*chips.find_device_files(), processes.LOCK_FILE))
        names = ", ".join(map(str, users.processes)) or "a process of another user"
        return TpuInUse(
            f"jax cannot start the TPU, because another process uses it: {names}. Stop that "
            f"process, or wait until it ends; `tpuserve doctor` lists the processes."
        )
    return TpuNotFound(
        f"jax finds no device of the platform {platform!r}: {reason}. Run `tpuserve doctor` to see "
        f"what is missing, or set {PLATFORM_VARIABLE}=cpu to run on the CPU."
    )


def make_array_spec(shape: Sequence[int], dtype: Any, device: Any = None) -> Any:
    """Return a jax.ShapeDtypeStruct, the description of an array.

    Args:
      shape: the size of each dimension.
      dtype: the NumPy type of the elements.
      device: the jax device of the array; None leaves the device open.
    """
    jax: Any = importlib.import_module("jax")
    sharding = None if device is None else jax.sharding.SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)


def check_installed() -> None:
    """Check that jax is installed in a version that was tested, without importing jax.

    Raises:
      ExtraNotInstalled: jax is not installed, or has another version.
    """
    try:
        found = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError as error:
        raise _missing_error() from error
    # Compare the first two numbers only, such as (0, 11) of "0.11.0.dev2" and of "0.11rc1".
    match = re.match(r"(\d+)\.(\d+)", found)
    if match is None or not _LOWEST <= (int(match[1]), int(match[2])) < _TOO_NEW:
        low, high = (".".join(map(str, version)) for version in (_LOWEST, _TOO_NEW))
        raise ExtraNotInstalled(
            f"running on PJRT devices was tested with jax from {low} to below {high}; found "
            f"{found}. Install one of these versions."
        )


def _import_jax() -> Any:
    check_installed()
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise _missing_error() from error


def _missing_error() -> ExtraNotInstalled:
    return ExtraNotInstalled(
        "running on PJRT devices needs jax, which is not installed. Install tpuserve[pjrt] for the "
        "CPU, or tpuserve[tpu] for a TPU."
    )
