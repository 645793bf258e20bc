"""Writes SavedModels with a TPU metagraph of a function with one input."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags
from tpuserve.export import MetagraphSpec, SavedModelWriter, on_tpu

v1 = tf.compat.v1


def variable(name: str, shape: list[int]) -> Any:
    """Create a variable of ones in the default graph."""
    return v1.get_variable(name, shape, use_resource=True, initializer=v1.ones_initializer())


def write_model(
    directory: Path,
    model: Callable[[Any], Any],
    shape: list[int | None],
    *,
    saved: Callable[[], list[Any]] = lambda: v1.global_variables() or [variable("unused", [])],
) -> Path:
    """Write a SavedModel with a TPU metagraph; return its version directory.

    Args:
      directory: The base directory.
      model: Takes the tensor x and returns y; puts its own parts on the TPU.
      shape: Shape of x, a float32 tensor.
      saved: Returns the variables to initialise and save; the export has no values of others.
    """
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, shape, name="x")
        y = model(x)
        tensors = {name: v1.saved_model.build_tensor_info(tensor) for name, tensor in [("x", x)]}
        outputs = {"y": v1.saved_model.build_tensor_info(y)}
        method = "tensorflow/serving/predict"
        signature = v1.saved_model.build_signature_def(tensors, outputs, method)
        variables = saved()
        with SavedModelWriter(str(directory)) as writer:
            writer.add(
                MetagraphSpec(
                    tags.SERVE_TPU,
                    graph,
                    {"serving_default": signature},
                    lambda session: session.run([variable.initializer for variable in variables]),
                    saver=v1.train.Saver(variables),
                )
            )
    return Path(writer.directory)


def whole(computation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a model that runs a computation on the TPU as a whole."""
    return lambda x: on_tpu(lambda inputs: [computation(inputs)], x)[0]


def linear(x: Any) -> Any:
    """Map 16 features to 4 outputs: 128 floating point operations for each row."""
    return x @ variable("w", [16, 4])
