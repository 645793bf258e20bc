"""Finds the initialisation op and the asset files of a metagraph, which a loader uses once."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tpuserve.errors import DamagedSavedModel
from tpuserve.saved_model.signature import INIT_SIGNATURE

# The names of the collections and the files in which a loader finds the initialisation op, the
# assets and the variables. Source: tensorflow/cc/saved_model/constants.h.
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS_COLLECTION = "saved_model_assets"
_ASSETS = "assets"
_STRING = 7


def find_init_op(meta_graph: Any, directory: Path) -> str:
    """Return the name of the op that fills tables after the variables are restored; "" for none.

    Args:
      meta_graph: a MetaGraphDef.
      directory: the directory of the SavedModel, for the error.

    Raises:
      DamagedSavedModel: a collection does not name exactly one initialisation op.
    """
    if INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[INIT_SIGNATURE].outputs
        if INIT_SIGNATURE in outputs:
            return _node_name(outputs[INIT_SIGNATURE].name)
    for name in _INIT_COLLECTIONS:
        if name in meta_graph.collection_def:
            op_names = meta_graph.collection_def[name].node_list.value
            if len(op_names) != 1:
                raise DamagedSavedModel(
                    f"cannot load {directory}: collection {name} has {len(op_names)} "
                    f"initialisation ops and must have one. Export the model again."
                )
            return _node_name(op_names[0])
    return ""


def find_assets(meta_graph: Any, directory: Path) -> dict[str, str]:
    """Return the asset files of a metagraph: name of the tensor that takes the path → path.

    Args:
      meta_graph: a MetaGraphDef of TensorFlow.
      directory: the directory of the SavedModel.

    Raises:
      DamagedSavedModel: an asset is outside of the directory assets/ of the SavedModel.
    """
    assets = {}
    for asset in _asset_file_defs(meta_graph):
        name = PurePosixPath(asset.filename)
        # Refuse an asset outside of assets/: its name could lead to any file of the server.
        if name.is_absolute() or ".." in name.parts:
            raise DamagedSavedModel(
                f"cannot load {directory}: its asset {asset.filename} is outside of {_ASSETS}/. "
                f"Export the model again."
            )
        assets[asset.tensor_info.name] = str(directory / _ASSETS / name)
    return assets


def insert_asset_paths(meta_graph: Any, directory: Path) -> None:
    """Replace, in place, the asset paths in the graph's constants by the paths on this machine.

    The constants hold the paths of the machine that exported the model. A loader feeds the right
    paths only when it runs the initialisation op. An op that runs at a request would read the file
    that the constant names, which may be any file of the server.

    Args:
      meta_graph: a MetaGraphDef of TensorFlow.
      directory: the directory of the SavedModel.

    Raises:
      DamagedSavedModel: an asset is outside of the directory assets/ of the SavedModel.
    """
    assets = find_assets(meta_graph, directory)
    if not assets:
        return
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    for tensor, path in assets.items():
        node = nodes.get(_node_name(tensor))
        if node is not None and is_path_constant(node):
            node.attr["value"].tensor.string_val[:] = [path.encode()]


def is_path_constant(node: Any) -> bool:
    """Return whether a node is a constant scalar string, which an asset's path may replace."""
    if node.op != "Const" or node.attr["dtype"].type != _STRING:
        return False
    shape = node.attr["value"].tensor.tensor_shape
    return not (shape.dim or shape.unknown_rank)


def _asset_file_defs(meta_graph: Any) -> Iterator[Any]:
    if meta_graph.asset_file_def or _ASSETS_COLLECTION not in meta_graph.collection_def:
        yield from meta_graph.asset_file_def
        return
    # Import only the module of a protobuf message: a server plans loads in a subprocess, which
    # starts quickly because it imports no other part of TensorFlow.
    from tensorflow.core.protobuf import meta_graph_pb2

    for packed in meta_graph.collection_def[_ASSETS_COLLECTION].any_list.value:
        asset = meta_graph_pb2.AssetFileDef()
        if packed.Unpack(asset):
            yield asset


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
