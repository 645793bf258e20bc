"""Serialises a tf.function as a StableHLO module, by means of TensorFlow's XLA bridge."""

from collections.abc import Callable

# A part of TensorFlow's error message if a module cannot be written in StableHLO's portable form,
# although the translation succeeded.
_NOT_SERIALISED = "failed to serialize module"


def generate_stablehlo(generate: Callable[..., bytes | str]) -> bytes:
    """Return a tf.function as a StableHLO module, to be read by `jax_internals.parse_stablehlo`.

    Returns:
      The module in StableHLO's portable form. TensorFlow cannot write this form if the module has
      an op of another MLIR dialect, such as mhlo.erf. In this case, the module is returned as text.
    """
    try:
        module = generate(stage="stablehlo_serialized")
    except ValueError as error:
        if _NOT_SERIALISED not in str(error):
            raise
        module = generate(stage="stablehlo")
    return module.encode() if isinstance(module, str) else module
