"""A model that jax2tf writes from a JAX function: an XlaCallModule op with a StableHLO module."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve.devices import jax_client
from tpuserve.export import export

# The weights of 3 inputs and 2 outputs.
WEIGHTS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
X = {"x": tf.TensorSpec([None, 3], tf.float32)}


def convert(platforms: Sequence[str]) -> Any:
    """Return a TensorFlow function x W + c, where c is 0 on a CPU and 100 on a TPU."""
    # Keep JAX from looking for a TPU.
    jax_client.list_devices("cpu")
    import jax
    from jax.experimental import jax2tf

    def linear(weights: Any, x: Any) -> Any:
        add = jax.lax.platform_dependent(x @ weights, cpu=lambda y: y, tpu=lambda y: y + 100.0)
        return {"y": add}

    converted = jax2tf.convert(
        linear,
        polymorphic_shapes=(None, "(b, 3)"),
        native_serialization_platforms=tuple(platforms),
    )
    weights = tf.Variable(WEIGHTS)
    # AutoGraph would rewrite all of JAX, which takes half a minute.
    return tf.autograph.experimental.do_not_convert(lambda x: converted(weights, x))


def export_function(base: Path, platforms: Sequence[str]) -> Path:
    """Export the function with both metagraphs; return the version directory."""
    return Path(export(convert(platforms), X, str(base)))
