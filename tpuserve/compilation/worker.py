"""The TPU compiler itself, in a process of its own.

libtpu's compile-only client needs no TPU. It lives apart because it ends the whole process where
it meets an input that it never expected, and because several then compile side by side. TensorFlow
is not imported here.
"""

import contextlib
import ctypes
import faulthandler
import math
import os
import re
import signal
import time
from functools import cache
from typing import Any

from tpuserve.compilation.stats import CompileResult, CompileStats, CompileTarget

# Read by libtpu and jax as they are imported: do not look for a TPU, or for a description of one;
# do not take the lock that a process running on a TPU holds; be quiet.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_WORKER_HOSTNAMES": "localhost",
}

_SET_PARENT_DEATH_SIGNAL = 1

# Beyond this, a message repeats itself: the compiler lists each allocation that does not fit.
_MOST_OF_A_MESSAGE = 4000


def init_worker() -> None:
    """Prepares a process to be a worker: what becomes of it is told by who waits for it."""
    # A compiler that ends the process is an outcome, and not a crash to print the stacks of.
    faulthandler.disable()
    # Nor does a worker outlive a parent that is killed. Source: prctl(2).
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def describe_topology(name: str) -> CompileTarget | str:
    """The topology of a name, or what libtpu says against it."""
    try:
        devices = _devices(name)
    except Exception as error:
        return _error_text(error)
    chips = math.prod(map(int, re.findall(r"\d+", name.partition(":")[2])))
    return CompileTarget(name, devices[0].device_kind, max(len(devices) // chips, 1))


def compile_module(module: bytes, topology: str) -> CompileResult:
    """Compiles a module for one device of a topology.

    Args:
      module: StableHLO in its portable form.
      topology: as libtpu takes it, "v5e:1x1".
    """
    from jax.interpreters import mlir
    from jaxlib import xla_client
    from jaxlib.mlir.dialects import stablehlo

    started = time.perf_counter()
    try:
        device = _devices(topology)[0]
        # A context can be compiled from but once at a time, so each module has its own.
        parsed = stablehlo.deserialize_portable_artifact(mlir.make_ir_context(), module)
        _remove_copies(parsed)
        executable = device.client.compile(
            parsed, xla_client.DeviceList((device,)), xla_client.CompileOptions()
        )
        cost = executable.cost_analysis()
        memory = executable.get_compiled_memory_stats()
    except Exception as error:
        # Whatever the compiler says is the answer that was asked for.
        return CompileResult(error=_error_text(error))
    seconds, untimed = _estimate_seconds(cost.get("optimal_seconds", 0.0))
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


def _remove_copies(module: Any) -> None:
    """Lets what uses a copy use the original, in place.

    TensorFlow's bridge copies each variable that a loop or a branch reads. Its copy is no op of
    StableHLO, and the compiler takes no other.
    """
    from jaxlib.mlir import ir

    copies = []

    def collect(operation: Any) -> Any:
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for each in copies:
        each.results[0].replace_all_uses_with(each.operands[0])
        each.erase()


def _estimate_seconds(optimal_seconds: float) -> tuple[float, int]:
    """The estimated seconds, and how many operations they leave out."""
    # In the compiler's sum an operation that it has no time for counts as minus one second.
    untimed = max(math.ceil(-optimal_seconds), 0)
    return optimal_seconds + untimed, untimed


@cache
def _devices(topology: str) -> Any:
    os.environ.update(ENVIRONMENT)
    from jax.experimental import topologies

    return topologies.get_topology_desc(topology, platform="tpu").devices


def _error_text(error: Exception) -> str:
    return str(error).strip()[:_MOST_OF_A_MESSAGE] or type(error).__name__
