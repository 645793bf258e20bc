"""Writes a computation as a StableHLO module, by TensorFlow's XLA bridge."""

from collections.abc import Callable

# TensorFlow's message if it has translated a module and cannot write the module's portable form.
_NOT_SERIALISED = "failed to serialize module"


def generate_stablehlo(generate: Callable[..., bytes | str]) -> bytes:
    """Return a computation as a StableHLO module, for `jax_internals.parse_stablehlo`.

    Args:
      generate: the result of `experimental_get_compiler_ir` of a tf.function.

    Returns:
      The portable form of the module, or its text where TensorFlow cannot write the portable form.
      TensorFlow cannot write the portable form of some modules that have an op of another dialect,
      such as mhlo.erf.

    Raises:
      ValueError, TypeError, tf.errors.OpError: the computation has an op that XLA cannot compile.
    """
    try:
        module = generate(stage="stablehlo_serialized")
    except ValueError as error:
        if _NOT_SERIALISED not in str(error):
            raise
        module = generate(stage="stablehlo")
    return module.encode() if isinstance(module, str) else module
