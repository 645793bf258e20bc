"""Finds the initialisation op and the asset files that a loader of a metagraph needs."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tpuserve.errors import DamagedSavedModel
from tpuserve.graph.references import node_name
from tpuserve.saved_model.signature import INIT_SIGNATURE

# The names of a SavedModel's collections and files, from tensorflow/cc/saved_model/constants.h. A
# loader finds the initialisation op, the assets and the variables by these names.
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS_COLLECTION = "saved_model_assets"
_ASSETS = "assets"
_STRING = 7


def find_init_op(meta_graph: Any, directory: Path) -> str:
    """Return the name of the initialisation op, such as one that fills lookup tables.

    A loader runs this op once, after it has restored the variables.
    """
    if INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[INIT_SIGNATURE].outputs
        if INIT_SIGNATURE in outputs:
            return node_name(outputs[INIT_SIGNATURE].name)
    for name in _INIT_COLLECTIONS:
        if name in meta_graph.collection_def:
            op_names = meta_graph.collection_def[name].node_list.value
            if len(op_names) != 1:
                raise DamagedSavedModel(
                    f"cannot load {directory}: collection {name} has {len(op_names)} "
                    f"initialisation ops and must have one. Export the model again."
                )
            return node_name(op_names[0])
    return ""


def find_assets(meta_graph: Any, directory: Path) -> dict[str, str]:
    """Return the asset files of a metagraph: name of the tensor to feed → path of the file."""
    assets = {}
    for asset in _asset_file_defs(meta_graph):
        name = PurePosixPath(asset.filename)
        # Refuse a file name that leads out of assets/. A malicious model could otherwise read any
        # file of the server.
        if name.is_absolute() or ".." in name.parts:
            raise DamagedSavedModel(
                f"cannot load {directory}: its asset {asset.filename} is outside of {_ASSETS}/. "
                f"Export the model again."
            )
        assets[asset.tensor_info.name] = str(directory / _ASSETS / name)
    return assets


def insert_asset_paths(meta_graph: Any, directory: Path) -> None:
    """Write the paths of the asset files on this machine into the constants of a graph.

    The Const nodes of assets have the paths of the machine that exported the model.
    """
    assets = find_assets(meta_graph, directory)
    if not assets:
        return
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    for tensor, path in assets.items():
        node = nodes.get(node_name(tensor))
        if node is not None and is_path_constant(node):
            node.attr["value"].tensor.string_val[:] = [path.encode()]


def is_path_constant(node: Any) -> bool:
    """Return whether a node is a scalar string Const, whose value can be replaced by a path."""
    if node.op != "Const" or node.attr["dtype"].type != _STRING:
        return False
    shape = node.attr["value"].tensor.tensor_shape
    return not (shape.dim or shape.unknown_rank)


def _asset_file_defs(meta_graph: Any) -> Iterator[Any]:
    if meta_graph.asset_file_def or _ASSETS_COLLECTION not in meta_graph.collection_def:
        yield from meta_graph.asset_file_def
        return
    # Import only this module of TensorFlow, which has protobuf messages. A server calls this
    # function in a subprocess that must start quickly, without importing all of TensorFlow.
    from tensorflow.core.protobuf import meta_graph_pb2

    for packed in meta_graph.collection_def[_ASSETS_COLLECTION].any_list.value:
        asset = meta_graph_pb2.AssetFileDef()
        if packed.Unpack(asset):
            yield asset
