"""Wraps the parts of jax and jaxlib that are not public but are needed to compile StableHLO.

pyproject.toml limits the versions of jax, and `check_parts` checks that the installed version has
all of these parts.
"""

import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpuserve.errors import ExtraNotInstalled, UnsupportedOnTpu

# Python module of jax or jaxlib → names of the non-public attributes that tpuserve uses.
# `find_missing_parts` checks that they exist.
_PARTS: Mapping[str, Sequence[str]] = {
    "jax.experimental.serialize_executable": ("deserialize_and_load", "serialize"),
    "jax.experimental.topologies": ("get_topology_desc",),
    "jax.interpreters.mlir": ("make_ir_context",),
    "jaxlib.mlir.dialects.stablehlo": (
        "ConvDimensionNumbers",
        "deserialize_portable_artifact",
        "get_current_version",
        "serialize_portable_artifact",
    ),
    "jaxlib.mlir.ir": (
        "Attribute",
        "ComplexType",
        "DenseI64ArrayAttr",
        "DictAttr",
        "FunctionType",
        "InsertionPoint",
        "IntegerAttr",
        "IntegerType",
        "Location",
        "MLIRError",
        "Module",
        "Operation",
        "RankedTensorType",
        "StringAttr",
        "TypeAttr",
        "UnitAttr",
        "WalkResult",
    ),
    "jaxlib.xla_client": ("CompileOptions", "DeviceList"),
}

# The first bytes of each module in StableHLO's portable form, which is MLIR bytecode.
_PORTABLE_FORM = b"ML\xefR"
# The name of the attribute of an MLIR module that says which result of `main` is the new value of
# which argument, for the arguments that are variables.
_ALIASES = "mhlo.input_output_alias"


def find_missing_parts() -> list[str]:
    """Return the names of parts that the installed jax lacks, such as "jaxlib.mlir.ir.Module"."""
    missing = []
    for module_name, attributes in _PARTS.items():
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            missing.append(module_name)
            continue
        missing += [
            f"{module_name}.{attribute}"
            for attribute in attributes
            if not hasattr(module, attribute)
        ]
    return missing


@functools.cache
def check_parts() -> None:
    """Check that the installed jax has all parts that tpuserve uses.

    The check takes less than a millisecond after the import of jax, and runs once in a process.
    """
    missing = find_missing_parts()
    if missing:
        raise ExtraNotInstalled(
            f"{describe_versions()} lack {', '.join(missing)}, which tpuserve uses. Install the "
            f"supported versions: pip install '.[pjrt]', or '.[tpu]' for a TPU."
        )


def describe_versions() -> str:
    """Return the installed versions of jax, such as "jax 0.10.2 and jaxlib 0.10.2"."""
    packages = ("jax", "jaxlib")
    return " and ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def topology_devices(topology: str) -> Any:
    """Return jax's device objects for a TPU topology, to compile for it on a machine without TPU.

    Args:
      topology: the name of the topology, such as "v5e:2x2".
    """
    from jax.experimental import topologies

    return topologies.get_topology_desc(topology, platform="tpu").devices


def parse_stablehlo(module: bytes) -> Any:
    """Parse a StableHLO module that TensorFlow has written; return it as an MLIR module.

    TensorFlow also writes a few ops of the MHLO dialect. They are removed or replaced by custom
    calls.

    Raises:
      UnsupportedOnTpu: the installed jaxlib cannot read the text.
    """
    check_parts()
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    context = mlir.make_ir_context()
    if module.startswith(_PORTABLE_FORM):
        parsed = stablehlo.deserialize_portable_artifact(context, module)
    else:
        try:
            with context:
                parsed = ir.Module.parse(module.decode())
        except ir.MLIRError as error:
            raise UnsupportedOnTpu(
                f"{describe_versions()} cannot read a module of TensorFlow: {error}. Install the "
                f"versions of the extra pjrt."
            ) from error
    _replace_mhlo(parsed)
    return parsed


def rename_module(module: Any, name: str) -> None:
    """Set the name of an MLIR module.

    TensorFlow's XLA bridge numbers the modules of a process, and the number is a part of the name.
    """
    from jaxlib.mlir import ir

    operation = module.operation
    operation.attributes["sym_name"] = ir.StringAttr.get(name, operation.context)


def find_aliases(module: Any) -> dict[int, int]:
    """Return which results of `main` are new values of variables.

    TensorFlow's XLA bridge lets each of these results share the memory of an argument, which is the
    old value of the variable.
    """
    attributes = module.operation.attributes
    if _ALIASES not in attributes:
        return {}
    # The list output_index is empty if the module has a single result, whose index is 0.
    return {
        next(iter(alias["output_index"]), 0): alias["alias"]["parameter_number"].value
        for alias in attributes[_ALIASES]
    }


def _replace_mhlo(module: Any) -> None:
    """Replace mhlo ops, which TensorFlow writes but StableHLO does not have, in an MLIR module."""
    from jaxlib.mlir import ir

    for operation in find_operations(
        module, lambda candidate: candidate.name in ("mhlo.copy", "mhlo.erf")
    ):
        (value,) = operation.operands
        if operation.name == "mhlo.erf":
            with module.context, operation.location, ir.InsertionPoint(operation):
                call = ir.Operation.create(
                    "stablehlo.custom_call",
                    results=[operation.results[0].type],
                    operands=[value],
                    attributes={
                        "call_target_name": ir.StringAttr.get("mhlo.erf"),
                        "mhlo.attributes": ir.DictAttr.get({}),
                        "mhlo.version": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1),
                    },
                )
            value = call.results[0]
        operation.results[0].replace_all_uses_with(value)
        operation.erase()


def find_operations(module: Any, predicate: Callable[[Any], bool]) -> list[Any]:
    """Return the operations of an MLIR module for which `predicate` is true.

    Operations in nested regions, such as bodies of loops, are included.
    """
    from jaxlib.mlir import ir

    operations = []

    def collect(operation: Any) -> Any:
        if predicate(operation):
            operations.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    return operations


def compile_module(module: Any, device: Any) -> tuple[Mapping[str, float], Any]:
    """Compile an MLIR module for one jax device, to find its cost and the memory that it needs.

    Returns:
      XLA's cost analysis, as a mapping from property to value, and XLA's memory statistics.
    """
    from jaxlib import xla_client

    executable = device.client.compile(
        module, xla_client.DeviceList((device,)), xla_client.CompileOptions()
    )
    return executable.cost_analysis(), executable.get_compiled_memory_stats()


def result_types(module: Any) -> list[tuple[tuple[int, ...], str]]:
    """Return the shape and the MLIR element type, such as "f32", of each result of `main`."""
    from jaxlib.mlir import ir

    (main,) = (
        operation
        for operation in module.body.operations
        if ir.StringAttr(operation.attributes["sym_name"]).value == "main"
    )
    function_type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    tensors = [ir.RankedTensorType(result) for result in function_type.results]
    return [(tuple(tensor.shape), str(tensor.element_type)) for tensor in tensors]


def serialize_stablehlo(module: Any) -> bytes:
    """Serialise an MLIR module in StableHLO's portable form."""
    from jaxlib.mlir.dialects import stablehlo

    serialized: bytes = stablehlo.serialize_portable_artifact(
        module, stablehlo.get_current_version()
    )
    return serialized
