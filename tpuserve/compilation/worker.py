"""The functions that run in a compiler process: they call libtpu through jax.

libtpu's compile-only client needs no TPU. It runs in separate processes because it aborts the
whole process on unexpected input, and so that several modules compile in parallel. TensorFlow must
not be imported in these processes.
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

# Environment variables that libtpu and jax read when they are imported. With these values they do
# not look for a TPU or its metadata, do not take the lock of a process that uses a TPU, and write
# no logs.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

# PR_SET_PDEATHSIG, the operation of prctl(2) that chooses the signal that the kernel sends to a
# process when its parent ends.
_SET_PARENT_DEATH_SIGNAL = 1

# Error messages are cut to this length, because long messages repeat themselves: the compiler lists
# each allocation that does not fit.
_MOST_MESSAGE_CHARACTERS = 4000


def init_worker() -> None:
    """Make a worker process print no stack traces if it crashes, and end when its parent ends."""
    # Print no stack traces if the compiler aborts this process: the parent reports the abort.
    faulthandler.disable()
    # Let the kernel kill this worker when its parent ends: a parent that is killed cannot end its
    # workers.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def find_missing_jax_parts() -> list[str]:
    """Return the attributes that compilation needs and the installed jax lacks, as dotted names."""
    _set_environment()
    return jax_internals.find_missing_parts()


def describe_topology(name: str) -> CompileTarget | str:
    """Return the compile target of a topology name, or libtpu's error message."""
    try:
        devices = topology_devices(name)
    except Exception as error:
        return error_text(error)
    devices_per_chip = max(len(devices) // chips.count_chips(name), 1)
    return CompileTarget(name, devices[0].device_kind, devices_per_chip)


def compile_module(module: bytes, topology: str) -> CompileResult:
    """Compile a module for one device of a topology.

    Args:
      module: StableHLO in its portable form.
      topology: Name in libtpu's notation, such as "v5e:1x1".
    """
    started = time.perf_counter()
    try:
        device = topology_devices(topology)[0]
        parsed = jax_internals.parse_stablehlo(module)
        cost, memory = jax_internals.compile_module(parsed, device)
    except Exception as error:
        # Report any error of the compiler as this module's result, so that the other modules still
        # compile.
        return CompileResult(error=error_text(error))
    seconds, untimed = split_estimate(cost.get("optimal_seconds", 0.0))
    return CompileResult(
        CompileStats(
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
    )


def split_estimate(optimal_seconds: float) -> tuple[float, int]:
    """Split the compiler's estimated time into seconds and the number of untimed operations.

    The estimate is a sum over operations, in which each operation that the compiler cannot time
    counts as minus one second.
    """
    untimed = max(math.ceil(-optimal_seconds), 0)
    return optimal_seconds + untimed, untimed


@cache
def topology_devices(topology: str) -> Any:
    """Return jax's device objects for a topology."""
    _set_environment()
    return jax_internals.topology_devices(topology)


def _set_environment() -> None:
    os.environ.update(ENVIRONMENT)


def error_text(error: Exception) -> str:
    """Return the message of an error, cut to a readable length."""
    return str(error).strip()[:_MOST_MESSAGE_CHARACTERS] or type(error).__name__
