"""Turns a serialised StableHLO module into a function that jax can call and compile."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tpuserve.devices import jax_client
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.stablehlo import cpu_convolutions, jax_internals, spmd_collectives


def export_module(
    module: bytes, arguments: Sequence[Any], platform: str, *, name: str = "cluster"
) -> Any:
    """Return a jax.export.Exported that runs a StableHLO module.

    jax has no function for this purpose.
    """
    import jax
    import jax.numpy as jnp

    parsed = jax_internals.parse_stablehlo(module)
    jax_internals.rename_module(parsed, name)
    spmd_collectives.convert_collectives(parsed)
    if platform == "cpu":
        cpu_convolutions.transpose_convolutions(parsed)
    results = [
        jax_client.make_array_spec(shape, _numpy_type(element))
        for shape, element in jax_internals.result_types(parsed)
    ]

    def placeholder(*values: Any) -> Any:
        return tuple(jnp.zeros(result.shape, result.dtype) for result in results)

    # keep_unused=True: by default, jax.jit removes arguments that a function does not use, and the
    # function `placeholder` uses none.
    exported = jax.export.export(jax.jit(placeholder, keep_unused=True), platforms=(platform,))(
        *arguments
    )
    return dataclasses.replace(
        exported,
        fun_name=name,
        mlir_module_serialized=jax_internals.serialize_stablehlo(parsed),
    )


def _numpy_type(element: str) -> Any:
    """Convert an MLIR element type, such as "f32", "ui8" or "bf16", to a NumPy dtype."""
    import jax.numpy as jnp

    names = {
        "i1": "bool",
        "bf16": "bfloat16",
        "complex<f32>": "complex64",
        "complex<f64>": "complex128",
        **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
        **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
        **{f"ui{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    }
    if element not in names:
        raise UnsupportedOnTpu(f"a computation returns a tensor of the type {element}")
    return jnp.dtype(names[element])
