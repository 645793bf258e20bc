"""Starts jax and finds its PJRT devices, on which tpuserve runs TPU graphs.

PJRT is the interface through which jax uses TPUs. TensorFlow itself has no runtime for current
TPUs.
"""

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
    Code,
    CodedError,
    ExtraNotInstalled,
    InvalidSetting,
    TpuNotFound,
    TpuserveError,
    WrongContext,
)
from tpuserve.tpu_hardware import chips

PLATFORM_VARIABLE = "TPUSERVE_PJRT_PLATFORM"
"""The environment variable that selects the platform of the devices: "tpu", "cpu" or "cuda"."""

CUDA = "cuda"
"""The platform of NVIDIA GPUs. jax's devices call it "gpu", and jax.export calls it "cuda"."""
_GPU = "gpu"

_PLATFORMS = ("tpu", "cpu", CUDA)
# By default jax takes three quarters of a GPU's memory when it starts, and TensorFlow all that is
# left. With these variables each takes what it needs. Sources: docs.jax.dev/gpu_memory_allocation,
# tensorflow.org/guide/gpu.
_SHARED_MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
# libtpu's error message contains this text if another process is using the TPU.
_IN_USE = "already in use"
# If another process sends no heartbeat for this time, in seconds, jax ends this process with a
# stack trace.
_HEARTBEAT_TIMEOUT_SECS = 600
_DISTRIBUTED_OPTIONS = {
    # Turn off jax's preemption service, which would replace the program's handler of SIGTERM.
    "jax_enable_preemption_service": False,
    # Let a failed process end without waiting for the other processes, which can themselves wait
    # for the failed process.
    "jax_enable_recoverability": True,
}
# The lowest version of jax that is accepted, and the lowest version that is refused as too new, as
# pairs (major, minor).
_LOWEST, _TOO_NEW = (0, 9), (0, 11)


def find_platform(environ: Mapping[str, str] = os.environ) -> str:
    """Return the platform of PJRT devices that the variable TPUSERVE_PJRT_PLATFORM selects.

    Raises:
      InvalidSetting: the variable has a value that is no platform.
    """
    platform = environ.get(PLATFORM_VARIABLE, "").strip() or _PLATFORMS[0]
    if platform == _GPU:
        return CUDA
    if platform not in _PLATFORMS:
        raise InvalidSetting(
            f"{PLATFORM_VARIABLE} is {platform!r}. Set it to tpu, cpu or cuda, or unset it, which "
            f"means {_PLATFORMS[0]}."
        )
    return platform


def list_devices(platform: str) -> tuple[Any, ...]:
    """Start jax in this process with 64-bit types, and return its local devices of a platform.

    Variables such as the global step, and the inputs of many models, have 64-bit types.
    """
    jax = _configured_jax(platform)
    try:
        return tuple(jax.local_devices(backend=platform))
    except (RuntimeError, AssertionError) as error:
        # jax asserts that the plug-in of a platform is installed.
        raise _explain(error, platform) from error


def platform_of(device: Any) -> str:
    """Return the platform of a device, as TPUSERVE_PJRT_PLATFORM and jax.export name it."""
    return CUDA if device.platform == _GPU else str(device.platform)


def connect_processes(
    platform: str, index: int, count: int, *, service: str, port: int, timeout_secs: float
) -> None:
    """Connect jax in this process with jax in the processes of other hosts.

    After this call, a computation can use the devices of all processes. Call this function once,
    before any function that returns devices.

    Args:
      port: the port on which process 0 runs the coordination service.
      timeout_secs: how long jax waits for the other processes, in seconds.
    """
    jax = _configured_jax(platform)
    if platform == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    for option, value in _DISTRIBUTED_OPTIONS.items():
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
        raise CodedError(
            f"jax cannot connect process {index} of {count} with the others: "
            f"{str(error).splitlines()[0]}. Start the program on all hosts again.",
            Code.ABORTED,
        ) from error
    except RuntimeError as error:
        raise WrongContext(
            f"jax cannot connect process {index} of {count} with the others: {error} Train or "
            f"evaluate with use_tpu=True before the program calls jax itself."
        ) from error


def _restore_sigterm_handler() -> None:
    """Install the program's SIGTERM handler again, because C++ code of jax may replace it."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def list_devices_of_all_processes(platform: str) -> tuple[Any, ...]:
    """Return jax's devices of all processes that `connect_processes` has connected."""
    jax: Any = importlib.import_module("jax")
    return tuple(jax.devices(platform))


def broadcast_arrays(arrays: Sequence[Any], *, is_source: bool) -> list[Any]:
    """Send the arrays of one process to all processes that `connect_processes` has connected.

    All processes have to call this function.
    """
    if not arrays:
        return []
    multihost_utils: Any = importlib.import_module("jax.experimental.multihost_utils")
    return list(multihost_utils.broadcast_one_to_all(list(arrays), is_source=is_source))


def _configured_jax(platform: str) -> Any:
    """Import jax, and configure it to start only one platform and to use 64-bit types."""
    if platform == CUDA:
        for name, value in _SHARED_MEMORY.items():
            os.environ.setdefault(name, value)
    jax = _import_jax()
    if not jax.config.jax_platforms:
        # Let jax start only this platform. By default it starts all platforms, so that even a
        # program on the CPU would occupy the TPU.
        jax.config.update("jax_platforms", platform)
    jax.config.update("jax_enable_x64", True)
    return jax


def _explain(error: RuntimeError | AssertionError, platform: str) -> TpuserveError:
    """Convert jax's error for a platform that does not start: return CodedError or TpuNotFound."""
    reason = (str(error).splitlines() or ["it does not know the platform"])[0].rstrip(".")
    if _IN_USE in reason:
        users = chips.find_processes((*chips.find_device_files(), chips.LOCK_FILE))
        names = ", ".join(map(str, users.processes)) or "a process of another user"
        return CodedError(
            f"jax cannot start the TPU, because another process uses it: {names}. Stop that "
            f"process, or wait until it ends; `tpuserve doctor` lists the processes.",
            Code.UNAVAILABLE,
        )
    if platform == CUDA:
        return TpuNotFound(
            f"jax finds no GPU: {reason}. Install its plug-in for CUDA (pip install "
            f"'jax[cuda12]'), and see whether nvidia-smi finds the GPU."
        )
    return TpuNotFound(
        f"jax finds no device of the platform {platform!r}: {reason}. Run `tpuserve doctor` to see "
        f"what is missing, or set {PLATFORM_VARIABLE}=cpu to run on the CPU."
    )


def make_array_spec(shape: Sequence[int], dtype: Any, device: Any = None) -> Any:
    """Return a jax.ShapeDtypeStruct, which describes an array for a compilation."""
    jax: Any = importlib.import_module("jax")
    sharding = None if device is None else jax.sharding.SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)


def check_installed() -> None:
    """Check that jax is installed in a version that was tested, without importing jax."""
    try:
        version = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError as error:
        raise _missing_error() from error
    # Compare only the major and minor version, so that "0.11.0.dev2" and "0.11rc1" count as 0.11.
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
        "running on PJRT devices needs jax, which is not installed. Run: pip install "
        "'.[pjrt]' for the CPU, or '.[tpu]' for a TPU."
    )
