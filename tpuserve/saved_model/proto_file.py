"""Finds and parses the saved_model.pb of a SavedModel."""

from collections.abc import Iterable
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tpuserve import tags as tag_sets
from tpuserve.errors import DamagedSavedModel, NotFound
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import nearby

BINARY_NAME = "saved_model.pb"
TEXT_NAME = "saved_model.pbtxt"
NAMES = (BINARY_NAME, TEXT_NAME)

# The name of the graph collection that lists the assets, as in
# tensorflow/cc/saved_model/constants.h.
_ASSETS_COLLECTION = "saved_model_assets"


def find_saved_model_file(directory: Path) -> Path:
    """Return the path of the file saved_model.pb or saved_model.pbtxt in a directory."""
    try:
        for name in NAMES:
            if (directory / name).is_file():
                return directory / name
        raise NotFound(nearby.why_not_found(directory, NAMES))
    except OSError as error:
        raise unreadable_error(directory, error) from error


def parse_saved_model_file(path: Path) -> pb.SavedModel:
    """Parse a saved_model.pb or saved_model.pbtxt file, which must have at least one metagraph."""
    proto = pb.SavedModel()
    try:
        if path.name == TEXT_NAME:
            text = path.read_text(encoding="utf-8")
            text_format.Parse(text, proto, allow_unknown_field=True)
        else:
            proto.ParseFromString(path.read_bytes())
    except OSError as error:
        raise unreadable_error(path, error) from error
    except (DecodeError, text_format.ParseError, ValueError, RecursionError) as error:
        raise DamagedSavedModel(
            f"{path} is not a SavedModel, or is damaged ({error}). Export the model again."
        ) from error
    if not proto.meta_graphs:
        raise DamagedSavedModel(f"{path} holds no metagraph. Export the model again.")
    return proto


def asset_names(metagraph: pb.MetaGraphDef) -> tuple[str, ...]:
    """Return the names of a metagraph's files below assets/, without duplicates.

    The SavedModel builder of TensorFlow 1 lists the assets in the collection saved_model_assets,
    TensorFlow 2 in the field asset_file_def.
    """
    assets: Iterable[pb.AssetFileDef] = metagraph.asset_file_def
    try:
        if not metagraph.asset_file_def and _ASSETS_COLLECTION in metagraph.collection_def:
            collection = metagraph.collection_def[_ASSETS_COLLECTION].any_list.value
            assets = [pb.AssetFileDef.FromString(packed.value) for packed in collection]
    except DecodeError as error:
        raise DamagedSavedModel(
            f"an asset of the metagraph {tag_sets.format_tags(metagraph.meta_info_def.tags)} is "
            f"damaged ({error}). Export the model again."
        ) from error
    return tuple(dict.fromkeys(asset.filename for asset in assets))


def unreadable_error(path: Path, error: OSError) -> DamagedSavedModel:
    """Create the error for a file or directory of a SavedModel that cannot be read."""
    return DamagedSavedModel(
        f"{path} cannot be read: {error.strerror or error}. Make it readable for this user."
    )
