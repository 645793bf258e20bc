"""Reads the SavedModel message of a directory with TensorFlow, without loading a metagraph."""

from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tpuserve.errors import DamagedSavedModel
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import saved_model_loader


def read_saved_model_message(directory: Path) -> Any:
    """Return TensorFlow's SavedModel message of a directory."""
    try:
        return saved_model_loader.parse_saved_model(str(directory))
    except (OSError, DecodeError, ValueError) as error:
        raise DamagedSavedModel(
            f"TensorFlow cannot read {directory}: {error}. Export the model again."
        ) from error


def meta_graph_defs(saved_model: Any) -> dict[TagSet, Any]:
    """Return tag set → MetaGraphDef, for all metagraphs of a SavedModel message."""
    return {
        frozenset(meta_graph_def.meta_info_def.tags): meta_graph_def
        for meta_graph_def in saved_model.meta_graphs
    }
