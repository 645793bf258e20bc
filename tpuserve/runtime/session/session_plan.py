"""Plans how a session loads a metagraph.

A server runs this module in a subprocess that has only the protobuf message classes of TensorFlow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tpuserve.errors import DamagedSavedModel
from tpuserve.graph.pruning import prune_metagraph
from tpuserve.graph.segments import GraphSegment, split_graph
from tpuserve.graph.static_cost import has_static_cost
from tpuserve.lowering import lower
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection

# The signature, the collections and the files in which a loader finds the initialisation op, the
# assets and the variables. Source: tensorflow/cc/saved_model/constants.h.
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS_COLLECTION = "saved_model_assets"
_VARIABLES = ("variables", "variables")
_ASSETS = "assets"


@dataclass(frozen=True)
class SessionPlan:
    """A metagraph that is prepared for loading into a session.

    Attributes:
      static_cost_signatures: names of the signatures whose run time depends on nothing but the
        shapes of their inputs; see `tpuserve.graph.static_cost`.
      restore_op: name of the op that restores the variables; empty if there are no variables.
      filename_tensor: name of the tensor that is fed with `variables_path` for `restore_op`.
      variables_path: the path prefix of the variables files, variables/variables.
      init_op: name of the op that fills tables after the variables are restored; empty for none.
      assets: tensor name → path of the asset file that it is fed with.
      tensorflow_version: the version that wrote the graph; empty if unknown.
      op_list: the serialised OpList of the ops that the graph was written with; empty if unknown.
      segments: the graph, pruned, lowered if necessary, and split into parts that are imported
        one after the other.
    """

    static_cost_signatures: frozenset[str]
    restore_op: str
    filename_tensor: str
    variables_path: str
    init_op: str
    assets: Mapping[str, str]
    tensorflow_version: str
    op_list: bytes
    segments: tuple[GraphSegment, ...] = field(repr=False)


def make_session_plan(
    meta_graph: Any,
    directory: Path,
    choice: MetaGraphSelection,
    signatures: Mapping[str, Signature],
) -> SessionPlan:
    """Lower a metagraph if `choice.lowered` is true, prune it, and split it for the import.

    Args:
      meta_graph: the MetaGraphDef message of TensorFlow; it is changed in place.
      directory: the directory of the SavedModel.
      choice: the selected metagraph, device and runtime.
      signatures: signature name → signature.

    Raises:
      DamagedSavedModel: an asset or an initialisation op is not valid.
      LoweringError: the metagraph has an op that cannot be lowered to CPU ops.
    """
    if choice.lowered:
        lowered = lower(meta_graph.graph_def, compiled=choice.compiled)
        meta_graph.graph_def.CopyFrom(lowered)
    prune_metagraph(meta_graph)
    graph, saver, info = meta_graph.graph_def, meta_graph.saver_def, meta_graph.meta_info_def
    return SessionPlan(
        static_cost_signatures=_static_cost_signatures(graph, signatures),
        restore_op=_node_name(saver.restore_op_name),
        filename_tensor=saver.filename_tensor_name,
        variables_path=str(directory.joinpath(*_VARIABLES)),
        init_op=_init_op(meta_graph, directory),
        assets=dict(_assets(meta_graph, directory)),
        tensorflow_version=info.tensorflow_version,
        op_list=info.stripped_op_list.SerializeToString(),
        segments=tuple(split_graph(graph, _signature_nodes(signatures))),
    )


def _static_cost_signatures(graph: Any, signatures: Mapping[str, Signature]) -> frozenset[str]:
    return frozenset(
        name
        for name, signature in signatures.items()
        if has_static_cost(graph, [output.name for output in signature.outputs.values()])
    )


def _init_op(meta_graph: Any, directory: Path) -> str:
    if _INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[_INIT_SIGNATURE].outputs
        if _INIT_SIGNATURE in outputs:
            return _node_name(outputs[_INIT_SIGNATURE].name)
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


def _assets(meta_graph: Any, directory: Path) -> Iterator[tuple[str, str]]:
    """Yield the tensor name and the file path of each asset."""
    from tensorflow.core.protobuf import meta_graph_pb2

    assets = list(meta_graph.asset_file_def)
    if not assets and _ASSETS_COLLECTION in meta_graph.collection_def:
        for packed in meta_graph.collection_def[_ASSETS_COLLECTION].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if packed.Unpack(asset):
                assets.append(asset)
    for asset in assets:
        name = PurePosixPath(asset.filename)
        # Refuse an asset outside of assets/: its name could lead to any file of the server.
        if name.is_absolute() or ".." in name.parts:
            raise DamagedSavedModel(
                f"cannot load {directory}: its asset {asset.filename} is outside of {_ASSETS}/. "
                f"Export the model again."
            )
        yield asset.tensor_info.name, str(directory / _ASSETS / name)


def _signature_nodes(signatures: Mapping[str, Signature]) -> set[str]:
    """Return the names of the nodes that signatures feed and fetch."""
    return {
        _node_name(spec.name)
        for signature in signatures.values()
        for spec in (*signature.inputs.values(), *signature.outputs.values())
    }


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
