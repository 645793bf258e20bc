"""Traced functions → the files of one SavedModel with a metagraph per tag set."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tpuserve.errors import ExportError
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import fingerprinting_utils, saved_model_save

_INIT_OP_SIGNATURE = "__saved_model_init_op"


def write_saved_model(
    root: Any,
    functions: Mapping[TagSet, Mapping[str, Any]],
    directory: str,
    *,
    as_text: bool = False,
) -> list[Any]:
    """Writes variables, assets and saved_model.pb; returns the MetaGraphDefs.

    Args:
      root: the trackable object that owns what the functions use.
      functions: tag set → signature name → concrete function. The first tag set's are saved by
        TensorFlow with the variables; of the others only the graphs are made, over the same
        root, so that their variables have the same keys in the checkpoint.
      directory: where to.
      as_text: write saved_model.pbtxt in place of saved_model.pb.

    Raises:
      ExportError: TensorFlow refuses the functions.
    """
    # A served model is not trained on, and a TPU computation has no gradient function to trace.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    (first_tags, first), *others = functions.items()
    try:
        saved_model_save.save_and_return_nodes(root, directory, dict(first), options)
        path = tf.io.gfile.join(directory, "saved_model.pb")
        saved_model = saved_model_pb2.SavedModel.FromString(_bytes(path))
        _finish(saved_model.meta_graphs[0], first_tags)
        for tags, each in others:
            meta_graph = _meta_graph(root, each, options)
            # A loader that reads this one finds two metagraphs, and so needs no object graph.
            meta_graph.ClearField("object_graph_def")
            _finish(meta_graph, tags)
            saved_model.meta_graphs.append(meta_graph)
    except (AssertionError, ValueError) as error:
        raise ExportError(f"TensorFlow cannot save the model: {error}") from error
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(saved_model.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(directory)
    if as_text:
        with tf.io.gfile.GFile(f"{path}txt", "w") as file:
            file.write(text_format.MessageToString(saved_model))
        tf.io.gfile.remove(path)
    return list(saved_model.meta_graphs)


def _meta_graph(root: Any, functions: Mapping[str, Any], options: Any) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "meta_graph.pb")
        saved_model_save.export_meta_graph(root, path, dict(functions), options)
        return meta_graph_pb2.MetaGraphDef.FromString(_bytes(path))


def _bytes(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return bytes(file.read())


def _finish(meta_graph: Any, tags: TagSet) -> None:
    meta_graph.meta_info_def.ClearField("tags")
    meta_graph.meta_info_def.tags.extend(sorted(tags))
    # The collection saved_model_main_op names the op that fills the tables as well, and all loaders
    # look there: as a signature it shows to clients, and tf.saved_model.load fails on it when
    # there are two metagraphs and it reads an asset.
    meta_graph.signature_def.pop(_INIT_OP_SIGNATURE, None)
