"""The devices of jax's PJRT client.

PJRT is the interface through which jax drives TPUs. TensorFlow has no runtime for today's TPUs.
"""

import contextlib
import importlib
import importlib.metadata
import math
import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.errors import (
    ExtraNotInstalled,
    InvalidSetting,
    TpuInUse,
    TpuNotFound,
    TpuRunError,
    TpuserveError,
    WrongContext,
)
from tpuserve.tpu_hardware import chips, processes

PLATFORM_VARIABLE = "TPUSERVE_PJRT_PLATFORM"
"""The environment variable that selects the platform of the devices, "tpu" or "cpu"."""

_PLATFORMS = ("tpu", "cpu")
# A text that libtpu's error contains if another process is using the TPU.
_IN_USE = "already in use"
# The time in seconds after which jax ends a process with a stack trace, because another process
# gives no sign of life. It is long, because `trainer.hosts` finds lost processes sooner.
_HEARTBEAT_TIMEOUT_SECS = 600
_DISTRIBUTED_OPTIONS = {
    # Turn off jax's preemption service, which would replace the program's handler of SIGTERM.
    "jax_enable_preemption_service": False,
    # Let a failed process end without waiting for the other processes, which may themselves wait
    # for the failed process.
    "jax_enable_recoverability": True,
}
# The oldest tested version of jax, and the first version that is newer than all tested versions.
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
    """Return jax's devices of a platform in this process, and switch jax to 64-bit types.

    Variables such as the global step, and the inputs of many models, have 64-bit types, which jax
    would otherwise convert to 32 bits.

    Args:
      platform: "tpu" or "cpu".

    Raises:
      ExtraNotInstalled: jax is not installed, or has a version that was not tested.
      TpuNotFound: jax finds no device of the platform.
      TpuInUse: another process uses the TPU.
    """
    jax = _configured_jax(platform)
    try:
        return tuple(jax.local_devices(backend=platform))
    except RuntimeError as error:
        raise _explain(error, platform) from error


def connect_processes(
    platform: str, index: int, count: int, *, service: str, port: int, timeout_secs: float
) -> None:
    """Connect jax in this process with jax in the processes of other hosts.

    Afterwards a computation can use the devices of all processes. Call this function once, before
    jax starts a platform.

    Args:
      platform: "tpu" or "cpu".
      index: the number of this process, from 0.
      count: the number of processes.
      service: the address, "HOST:PORT", at which this process reaches jax's service.
      port: the port on which process 0 runs the service.
      timeout_secs: how long jax waits for the other processes, in seconds.

    Raises:
      ExtraNotInstalled: jax is not installed, or has a version that was not tested.
      WrongContext: jax runs in this process already.
      TpuRunError: the processes could not be connected.
    """
    jax = _configured_jax(platform)
    if platform == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    for option, value in _DISTRIBUTED_OPTIONS.items():
        # Skip the options that jax 0.8 lacks, for which it raises an AttributeError.
        with contextlib.suppress(AttributeError):
            jax.config.update(option, value)
    try:
        jax.distributed.initialize(
            coordinator_address=service,
            num_processes=count,
            process_id=index,
            cluster_detection_method="deactivate",
            initialization_timeout=math.ceil(timeout_secs),
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT_SECS,
            coordinator_bind_address=f"[::]:{port}",
        )
        _restore_sigterm_handler()
    except jax.errors.JaxRuntimeError as error:
        raise TpuRunError(
            f"jax cannot connect process {index} of {count} with the others: "
            f"{str(error).splitlines()[0]}. Start the program on all hosts again."
        ) from error
    except RuntimeError as error:
        raise WrongContext(
            f"jax cannot connect process {index} of {count} with the others: {error} Train or "
            f"evaluate with use_tpu=True before the program calls jax itself."
        ) from error


def _restore_sigterm_handler() -> None:
    """Install Python's handler of SIGTERM again, which jax 0.8 replaces by one of its own."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def list_devices_of_all_processes(platform: str) -> tuple[Any, ...]:
    """Return the devices of all processes that `connect_processes` has connected."""
    jax: Any = importlib.import_module("jax")
    return tuple(jax.devices(platform))


def broadcast_arrays(arrays: Sequence[Any], *, is_source: bool) -> list[Any]:
    """Send the arrays of one process to all processes that `connect_processes` has connected.

    Args:
      arrays: NumPy arrays, of the same shapes and types in all processes.
      is_source: whether this process sends its arrays; true in exactly one process. All processes
        return the sent arrays.
    """
    if not arrays:
        return []
    multihost_utils: Any = importlib.import_module("jax.experimental.multihost_utils")
    return list(multihost_utils.broadcast_one_to_all(list(arrays), is_source=is_source))


def _configured_jax(platform: str) -> Any:
    """Import jax, select the platform that it starts, and enable its 64-bit types."""
    jax = _import_jax()
    if not jax.config.jax_platforms:
        # Start only this platform. By default jax starts every platform, and so occupies a TPU
        # even for a program that runs on the CPU.
        jax.config.update("jax_platforms", platform)
    jax.config.update("jax_enable_x64", True)
    return jax


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
        version = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError as error:
        raise _missing_error() from error
    # Compare the first two numbers only, such as (0, 11) of "0.11.0.dev2" and of "0.11rc1".
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or not _LOWEST <= (int(match[1]), int(match[2])) < _TOO_NEW:
        low, high = (".".join(map(str, version)) for version in (_LOWEST, _TOO_NEW))
        raise ExtraNotInstalled(
            f"running on PJRT devices was tested with jax from {low} to below {high}; found "
            f"{version}. Install one of these versions."
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
