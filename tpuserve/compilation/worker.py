"""Defines the functions that run in a compiler process and call libtpu through jax.

libtpu can compile without a TPU.
"""

import contextlib
import ctypes
import faulthandler
import math
import os
import signal
import time
from functools import cache
from typing import Any

from tpuserve.compilation import chips
from tpuserve.compilation.stats import CompileResult, CompileStats, CompileTarget
from tpuserve.stablehlo import jax_internals

# Environment variables of a compiler process.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

# The number of PR_SET_PDEATHSIG in prctl(2). This operation chooses the signal that the kernel
# sends to a process when its parent ends.
_SET_PARENT_DEATH_SIGNAL = 1

# Error messages are cut after this number of characters. A long message of the compiler lists many
# allocations that do not fit in memory, and the end of the list tells the user little.
_MOST_MESSAGE_CHARACTERS = 4000


def init_worker() -> None:
    """Let a new worker process print no stack trace when it crashes, and end with its parent."""
    # Print no stack traces if the compiler aborts this process: the parent reports the abort.
    faulthandler.disable()
    # Let the kernel kill this process when its parent ends. A parent that was killed itself cannot
    # end its worker processes.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def find_missing_jax_parts() -> list[str]:
    """Return the dotted names of the attributes that the compilation needs and jax lacks.

    The result is empty if the installed version of jax is supported.
    """
    _set_environment()
    return jax_internals.find_missing_parts()


def describe_topology(name: str) -> CompileTarget | str:
    """Ask libtpu for the device type and the devices per chip of a topology.

    Returns:
      The description of the topology; the text of libtpu's error if it does not know the topology.
    """
    try:
        devices = topology_devices(name)
    except Exception as error:
        return error_text(error)
    devices_per_chip = max(len(devices) // chips.count_chips(name), 1)
    return CompileTarget(name, devices[0].device_kind, devices_per_chip)


def compile_module(module: bytes, topology: str) -> CompileResult:
    """Compile a StableHLO module for one device of a topology.

    Args:
      topology: Name in libtpu's notation, such as "v5e:1x1".
    """
    started = time.perf_counter()
    try:
        device = topology_devices(topology)[0]
        parsed = jax_internals.parse_stablehlo(module)
        cost, memory = jax_internals.compile_module(parsed, device)
    except Exception as error:
        # Return any error of the compiler as the result of this module. An exception would end the
        # compilation of the other modules.
        return CompileResult(error=error_text(error))
    return CompileResult(make_stats(cost, memory, started))


def make_stats(cost: Any, memory: Any, started: float) -> CompileStats:
    """Return the figures of a compiled module.

    Args:
      cost: the result of XLA's cost analysis: name of a figure → figure.
      started: when the compilation began, in seconds of `time.perf_counter`.
    """
    seconds, untimed = split_estimate(cost.get("optimal_seconds", 0.0))
    return CompileStats(
        flops=max(cost.get("flops", 0.0), 0.0),
        bytes_moved=max(cost.get("bytes accessed", 0.0), 0.0),
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        code_bytes=memory.generated_code_size_in_bytes,
        seconds=seconds,
        untimed_operations=untimed,
        compile_seconds=time.perf_counter() - started,
    )


def split_estimate(optimal_seconds: float) -> tuple[float, int]:
    """Split the compiler's estimated time into seconds and the number of untimed operations.

    The compiler's figure is a sum of the times of all operations.

    Args:
      optimal_seconds: The figure of XLA's cost analysis, in seconds.
    """
    untimed = max(math.ceil(-optimal_seconds), 0)
    return optimal_seconds + untimed, untimed


@cache
def topology_devices(topology: str) -> Any:
    """Return jax's device objects for a topology; they can compile programs, but not run them."""
    _set_environment()
    return jax_internals.topology_devices(topology)


def _set_environment() -> None:
    os.environ.update(ENVIRONMENT)


def error_text(error: Exception) -> str:
    """Return the message of an error, cut to a readable length."""
    return str(error).strip()[:_MOST_MESSAGE_CHARACTERS] or type(error).__name__
