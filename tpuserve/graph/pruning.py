"""Removes nodes that serving never runs, such as those for training and saving, from a metagraph.

When a server loads a model, it spends most of the time on building the graph. During this time, it
answers requests to other models more slowly.
"""

from collections.abc import Iterator
from typing import Any

from tpuserve.graph.references import attribute_value, find_tensors, node_name
from tpuserve.graph.traversal import find_reachable

# Keys of the collections that TensorFlow's SavedModel loader reads. All others are removed.
_LOADER_COLLECTIONS = ("saved_model_main_op", "legacy_init_op", "saved_model_assets")
_COLOCATION_PREFIX = b"loc:@"


def prune_metagraph(meta_graph: Any) -> None:
    """Remove, in place, nodes and collections that neither a signature nor the loader uses.

    The function library is not changed.
    """
    for name in set(meta_graph.collection_def) - set(_LOADER_COLLECTIONS):
        del meta_graph.collection_def[name]
    graph = meta_graph.graph_def
    needed = needed_nodes(meta_graph)
    if len(needed) < len(graph.node):
        remaining = [node for node in graph.node if node.name in needed]
        del graph.node[:]
        graph.node.extend(remaining)


def needed_nodes(meta_graph: Any) -> set[str]:
    """Return the names of the nodes that a signature or TensorFlow's SavedModel loader needs."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    roots = map(node_name, _root_references(meta_graph))
    return find_reachable(roots, lambda name: _needed_by(nodes[name]) if name in nodes else None)


def _needed_by(node: Any) -> Iterator[str]:
    """Yield the names of the nodes that a node needs: its inputs and its colocation group."""
    yield from map(node_name, node.input)
    if "_class" in node.attr:
        for constraint in attribute_value(node, "_class").list.s:
            if constraint.startswith(_COLOCATION_PREFIX):
                yield constraint.removeprefix(_COLOCATION_PREFIX).decode()


def _root_references(meta_graph: Any) -> Iterator[str]:
    """Yield the names of the tensors and operations that signatures and the loader refer to."""
    for signature in meta_graph.signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            yield from find_tensors(info)
    # Import only this protobuf module of TensorFlow. The server prunes graphs in a subprocess,
    # which starts quickly because it does not import the rest of TensorFlow.
    from tensorflow.core.protobuf import meta_graph_pb2

    saver = meta_graph.saver_def
    yield from (saver.filename_tensor_name, saver.restore_op_name)
    for asset in meta_graph.asset_file_def:
        yield from find_tensors(asset.tensor_info)
    names = [name for name in _LOADER_COLLECTIONS if name in meta_graph.collection_def]
    for collection in (meta_graph.collection_def[name] for name in names):
        yield from collection.node_list.value
        for item in collection.any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if item.Unpack(asset):
                yield from find_tensors(asset.tensor_info)
