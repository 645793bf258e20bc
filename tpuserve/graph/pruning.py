"""A metagraph without what serving never runs: initialisers, training, the saving of variables.

Less of it has to be built as a graph, which is most of the time that a load takes, and time in
which little else runs.
"""

from collections.abc import Iterator
from typing import Any

# What a SavedModel's own loader reads of a metagraph's collections.
_COLLECTIONS = ("saved_model_main_op", "legacy_init_op", "saved_model_assets")
_COLOCATION = b"loc:@"


def prune_metagraph(meta_graph: Any) -> None:
    """Takes out of a MetaGraphDef message what neither signatures nor loading need, in place.

    Functions stay as they are.
    """
    for name in set(meta_graph.collection_def) - set(_COLLECTIONS):
        del meta_graph.collection_def[name]
    graph = meta_graph.graph_def
    nodes = {node.name: node for node in graph.node}
    pending = [_node_name(each) for each in _roots(meta_graph)]
    kept: set[str] = set()
    while pending:
        name = pending.pop()
        if name in kept or name not in nodes:
            continue
        kept.add(name)
        node = nodes[name]
        pending.extend(_node_name(each) for each in node.input)
        if "_class" in node.attr:
            places = node.attr["_class"].list.s
            pending.extend(
                each.removeprefix(_COLOCATION).decode()
                for each in places
                if each.startswith(_COLOCATION)
            )
    if len(kept) < len(graph.node):
        remaining = [node for node in graph.node if node.name in kept]
        del graph.node[:]
        graph.node.extend(remaining)


def _roots(meta_graph: Any) -> Iterator[str]:
    for signature in meta_graph.signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            yield from _tensors(info)
    # Only the messages of it.
    from tensorflow.core.protobuf import meta_graph_pb2

    saver = meta_graph.saver_def
    yield from (saver.filename_tensor_name, saver.restore_op_name)
    for asset in meta_graph.asset_file_def:
        yield from _tensors(asset.tensor_info)
    for collection in meta_graph.collection_def.values():
        yield from collection.node_list.value
        for each in collection.any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if each.Unpack(asset):
                yield from _tensors(asset.tensor_info)


def _tensors(info: Any) -> Iterator[str]:
    kind = info.WhichOneof("encoding")
    if kind == "coo_sparse":
        sparse = info.coo_sparse
        yield sparse.values_tensor_name
        yield sparse.indices_tensor_name
        yield sparse.dense_shape_tensor_name
    elif kind == "composite_tensor":
        for each in info.composite_tensor.components:
            yield from _tensors(each)
    else:
        yield info.name


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
