"""Writes traced functions to a SavedModel that has a metagraph for each tag set."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tpuserve.errors import ExportError
from tpuserve.saved_model.signature import INIT_SIGNATURE
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import fingerprinting_utils, saved_model_save


def write_saved_model(
    root: Any,
    functions: Mapping[TagSet, Mapping[str, Any]],
    directory: str,
    *,
    as_text: bool = False,
) -> list[Any]:
    """Write a SavedModel with several metagraphs; return the MetaGraphDefs.

    Args:
      functions: Tag set → signature name → concrete function. For the first tag set, TensorFlow
        saves a metagraph and the variables.
    """
    # Do not save custom gradients: a served model is not trained, and TensorFlow cannot trace a
    # gradient function for a TPU computation.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    (first_tags, first_functions), *others = functions.items()
    try:
        saved_model_save.save_and_return_nodes(root, directory, dict(first_functions), options)
        path = tf.io.gfile.join(directory, "saved_model.pb")
        saved_model = saved_model_pb2.SavedModel.FromString(_read_bytes(path))
        _set_tags(saved_model.meta_graphs[0], first_tags)
        for tags, tag_functions in others:
            meta_graph = _build_meta_graph(root, tag_functions, options)
            # Remove the object graph: loaders use it only if a SavedModel has a single metagraph.
            meta_graph.ClearField("object_graph_def")
            _set_tags(meta_graph, tags)
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


def _build_meta_graph(root: Any, functions: Mapping[str, Any], options: Any) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "meta_graph.pb")
        saved_model_save.export_meta_graph(root, path, dict(functions), options)
        return meta_graph_pb2.MetaGraphDef.FromString(_read_bytes(path))


def _read_bytes(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return bytes(file.read())


def _set_tags(meta_graph: Any, tags: TagSet) -> None:
    """Set the tags of a MetaGraphDef, and remove the init op from its signatures."""
    meta_graph.meta_info_def.ClearField("tags")
    meta_graph.meta_info_def.tags.extend(sorted(tags))
    # Remove the signature of the init op, which fills the tables.
    meta_graph.signature_def.pop(INIT_SIGNATURE, None)
