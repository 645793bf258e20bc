"""Writes SavedModels with a baseline and a candidate metagraph, each of a few ops."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from tpuserve import tags
from tpuserve.export import MetagraphSpec, SavedModelWriter, WarmUp, on_tpu

v1 = tf.compat.v1

Model = Callable[[Mapping[str, Any]], Mapping[str, Any]]
X = {"x": tf.TensorSpec([None, 2], tf.float32)}


def write_export(
    base: Path,
    baseline: Model,
    candidate: Model | None = None,
    inputs: Mapping[str, tf.TensorSpec] = X,
    *,
    signatures: Mapping[str, Model] | None = None,
    warm_up: WarmUp | None = None,
    on_host: bool = False,
) -> Path:
    """Write a SavedModel; return its version directory.

    Args:
      base: The base directory.
      baseline: The model of the {serve} metagraph.
      candidate: The model of the {serve, tpu} metagraph; None for the model of the baseline.
      inputs: The inputs of each signature, by alias.
      signatures: Further signatures, whose models are the same in both metagraphs.
      warm_up: The warm-up records to write.
      on_host: Whether to leave the candidate without a TPU computation.
    """
    with SavedModelWriter(str(base), warm_up=warm_up) as writer:
        for tag_set, model in (
            (tags.SERVE, baseline),
            (tags.SERVE_TPU, candidate or baseline),
        ):
            is_on_tpu = tag_set == tags.SERVE_TPU and not on_host
            graph = tf.Graph()
            with graph.as_default():
                models = {"serving_default": model, **(signatures or {})}
                definitions = {
                    name: _signature(model, inputs, is_on_tpu=is_on_tpu)
                    for name, model in models.items()
                }
            writer.add(MetagraphSpec(tag_set, graph, definitions, lambda session: None))
    return Path(writer.directory)


def _signature(model: Model, inputs: Mapping[str, tf.TensorSpec], *, is_on_tpu: bool) -> Any:
    placeholders = {
        alias: v1.placeholder(spec.dtype, spec.shape, alias) for alias, spec in inputs.items()
    }
    outputs = on_tpu(model, placeholders) if is_on_tpu else model(placeholders)
    signature = SignatureDef(method_name="tensorflow/serving/predict")
    for tensors, to in ((placeholders, signature.inputs), (outputs, signature.outputs)):
        for alias, tensor in tensors.items():
            to[alias].CopyFrom(v1.saved_model.build_tensor_info(tensor))
    return signature
