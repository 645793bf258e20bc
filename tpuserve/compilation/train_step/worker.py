"""Compiles a training step in a compiler process, in which TensorFlow must not be imported."""

import importlib
import math
import re
import time
from typing import Any

import numpy as np

from tpuserve.compilation import worker
from tpuserve.compilation.train_step.step import SerializedStep, StepResult
from tpuserve.devices import jax_client
from tpuserve.pjrt.exported_module import export_module
from tpuserve.pjrt.step_loop import AXIS, build_step_loop
from tpuserve.stablehlo import jax_internals

_SUMS = ("stablehlo.all_reduce", "stablehlo.reduce_scatter")
_ALL_REDUCE = re.compile(r"= .*\ball-reduce(-start)?\(")


def compile_step(step: SerializedStep, topology: str) -> StepResult:
    """Compile a loop of training steps for a topology, with a replica on each device.

    Args:
      topology: name in libtpu's notation, such as "v5e:2x2".

    Returns:
      The compiler's figures, such as the memory and the number of operations, or its error.
    """
    started = time.perf_counter()
    try:
        compiled = _lower(step, worker.topology_devices(topology)).compile()
        cost, memory = compiled.cost_analysis() or {}, compiled.memory_analysis()
        reduced_bytes = _count_reduced_bytes(step.module)
    except Exception as error:
        # Return any error of the compiler as the result of this step. An exception would end the
        # compilation of the other steps.
        return StepResult(error=worker.error_text(error))
    # XLA's cost analysis counts the body of a loop once, whatever the number of iterations. The
    # body of this loop is one training step, so the figures are those of one step.
    stats = worker.make_stats(cost, memory, started)
    num_all_reduces = _count_all_reduces(compiled)
    return StepResult(stats, memory.alias_size_in_bytes, reduced_bytes, num_all_reduces)


def _lower(step: SerializedStep, devices: Any) -> Any:
    """Build a loop of up to `step.capacity` steps, replicated over devices, for compilation."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    layout = step.layout
    arguments = [jax_client.make_array_spec(shape, dtype) for shape, dtype in step.arguments]
    exported = export_module(step.module, arguments, "tpu", name="replica_step")
    mesh = jax.sharding.Mesh(np.array(devices), (AXIS,))

    def spec(shape: Any, dtype: Any, *axes: str) -> Any:
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=sharding)

    def variable_spec(index: int, variable: Any) -> Any:
        if index not in layout.divided_variables:
            return spec(variable.shape, variable.dtype)
        rows, *rest = variable.shape
        return spec((rows * len(devices), *rest), variable.dtype, AXIS)

    leading = (len(devices), step.capacity)
    batches = tuple(
        spec((*leading, *feed.shape), feed.dtype, AXIS) for feed in arguments[: layout.num_feeds]
    )
    position, *variables = arguments[layout.num_feeds :]
    return build_step_loop(exported, layout, mesh, step.capacity).lower(
        tuple(variable_spec(*numbered_variable) for numbered_variable in enumerate(variables)),
        batches,
        spec((), np.int64),
        spec(position.shape, position.dtype),
        spec((), np.int64),
    )


def _count_reduced_bytes(module: bytes) -> int:
    """Return the bytes of the tensors that a StableHLO module sums over replicas."""
    from jaxlib.mlir import ir

    parsed = jax_internals.parse_stablehlo(module)
    total = 0
    for operation in jax_internals.find_operations(
        parsed, lambda candidate: candidate.name in _SUMS
    ):
        for operand in operation.operands:
            tensor = ir.RankedTensorType(operand.type)
            element, parts = tensor.element_type, 1
            if isinstance(element, ir.ComplexType):
                element, parts = element.element_type, 2
            total += math.prod(tensor.shape) * parts * math.ceil(element.width / 8)
    return total


def _count_all_reduces(compiled: Any) -> int | None:
    try:
        lines = compiled.as_text().splitlines()
    except Exception:
        # Leave the number of all-reduces unknown: jaxlib cannot read some programs that a newer
        # libtpu has compiled, such as programs for tpu7x.
        return None
    return sum(bool(_ALL_REDUCE.search(line)) for line in lines)
