"""Small real models, exported with TensorFlow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags
from tpuserve.export import MetagraphSpec, SavedModelWriter, on_tpu
from tpuserve.tags import TagSet

v1 = tf.compat.v1

Build = Callable[[Any], dict[str, Any]]


def half_plus_two(x: Any) -> dict[str, Any]:
    """Return y = x / 2 + 2, with 0.5 and 2 in variables."""
    half = v1.get_variable("half", initializer=0.5, use_resource=True)
    two = v1.get_variable("two", initializer=2.0, use_resource=True)
    return {"y": x * half + two}


def metagraph(build: Build, tag_set: TagSet = tags.SERVE) -> MetagraphSpec:
    """Build a metagraph with the input x, float32 [?, 1]; it runs on the TPU if tagged "tpu"."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 1], name="x")
        outputs = on_tpu(build, x) if "tpu" in tag_set else build(x)
        initializer = v1.global_variables_initializer()
        signature = v1.saved_model.predict_signature_def({"x": x}, outputs)
    return MetagraphSpec(
        tag_set, graph, {"serving_default": signature}, lambda session: session.run(initializer)
    )


def export(build: Build, base: Path, *tag_sets: TagSet) -> Path:
    """Export a model; return the version directory.

    Args:
      build: builds the outputs from x.
      base: the directory that receives the version directory.
      tag_sets: the tags of each metagraph; by default {serve} and {serve, tpu}.
    """
    with SavedModelWriter(str(base)) as writer:
        for tag_set in tag_sets or (tags.SERVE, tags.SERVE_TPU):
            writer.add(metagraph(build, tag_set))
    return Path(writer.directory)
