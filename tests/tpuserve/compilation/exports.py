"""SavedModelLoader with a TPU metagraph, each of a function of one input."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags
from tpuserve.export import MetagraphSpec, SavedModelWriter, on_tpu

v1 = tf.compat.v1


def variable(name: str, shape: list[int]) -> Any:
    """A variable of the default graph."""
    return v1.get_variable(name, shape, use_resource=True, initializer=v1.ones_initializer())


def write(
    directory: Path,
    model: Callable[[Any], Any],
    shape: list[int | None],
    *,
    saved: Callable[[], list[Any]] = lambda: v1.global_variables() or [variable("unused", [])],
) -> Path:
    """The version directory of a SavedModel whose TPU metagraph is the model as it is given.

    Args:
      directory: the base directory.
      model: x → y; places on the TPU what it wants to be there.
      shape: of x, a float32.
      saved: the variables that are written; the others have no value.
    """
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, shape, name="x")
        y = model(x)
        tensors = {name: v1.saved_model.build_tensor_info(each) for name, each in [("x", x)]}
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
                    lambda session: session.run([each.initializer for each in variables]),
                    saver=v1.train.Saver(variables),
                )
            )
    return Path(writer.directory)


def whole(computation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A model that is on the TPU as a whole."""
    return lambda x: on_tpu(lambda given: [computation(given)], x)[0]


def linear(x: Any) -> Any:
    """16 features to 4 outputs: 128 floating point operations a row."""
    return x @ variable("w", [16, 4])
