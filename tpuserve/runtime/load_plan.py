"""A SavedModel on disk → all that a session needs of it, as data; TensorFlow itself is not asked.

What is done here is Python's work and the parsing of messages, in which nothing else in the
process runs. So it is apart from the loading, and may be done in another process.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tpuserve.devices import TpuSystem
from tpuserve.errors import DamagedSavedModel
from tpuserve.graph import pruning, segments, static_cost
from tpuserve.graph.segments import GraphSegment
from tpuserve.lowering import lower
from tpuserve.saved_model import metagraph, proto_file, unsafe_ops
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection, select_metagraph
from tpuserve.tags import TagSet

# Source: tensorflow/cc/saved_model/constants.h.
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_VARIABLES = ("variables", "variables")
_ASSETS = "assets"


@dataclass(frozen=True)
class LoadRequest:
    """What is to be prepared; the arguments of `tpuserve.runtime.loader.load`,
    which says more.
    """

    directory: Path
    wanted_tags: TagSet | None
    hardware: TpuSystem
    fallback_to_cpu: bool = False
    forbid_unsafe_ops: bool = False


@dataclass(frozen=True)
class LoadPlan:
    """One metagraph, ready to be built.

    Attributes:
      choice: which it is, on what it is to run, and why.
      signatures: name → what it takes and gives; defaults are left out.
      signature_defs: name → the serialised SignatureDef.
      bounded: the signatures whose work depends on their inputs' shapes alone.
      restore_op: what restores the variables; empty where there are none.
      filename_tensor, variables: what it is fed.
      init_op: what is run after that; empty for none.
      assets: tensor → path, fed to it.
      written_by: TensorFlow's version that wrote the graph; empty where it does not say.
      producer_ops: the serialised OpList of those it used; empty where it does not say.
      pieces: the graph.
    """

    choice: MetaGraphSelection
    signatures: Mapping[str, Signature]
    signature_defs: Mapping[str, bytes]
    bounded: frozenset[str]
    restore_op: str
    filename_tensor: str
    variables: str
    init_op: str
    assets: Mapping[str, str]
    written_by: str
    producer_ops: bytes
    pieces: tuple[GraphSegment, ...] = field(repr=False)


def make_load_plan(asked: LoadRequest) -> LoadPlan:
    """The metagraph that is to run, pruned, checked, lowered where that is wanted, and cut.

    Raises:
      TpuserveError: as `tpuserve.runtime.loader.load` for what is wrong with the files.
    """
    directory = asked.directory
    described = {each.tags: each for each in metagraph.read_metagraphs(directory)}
    choice = select_metagraph(
        described.keys(),
        asked.wanted_tags,
        asked.hardware,
        where=str(directory),
        fallback_to_cpu=asked.fallback_to_cpu,
    )
    meta_graph = _read(directory, choice.tags)
    # Before anything of it is run, as its initialisation would be.
    if asked.forbid_unsafe_ops:
        unsafe_ops.check_no_unsafe_ops(meta_graph, directory)
    if choice.lowered:
        lowered = lower(meta_graph.graph_def, compiled=choice.compiled)
        meta_graph.graph_def.CopyFrom(lowered)
    pruning.prune_metagraph(meta_graph)
    signatures = described[choice.tags].signatures
    saver, info = meta_graph.saver_def, meta_graph.meta_info_def
    return LoadPlan(
        choice=choice,
        signatures=signatures,
        signature_defs={
            name: each.SerializeToString()
            for name, each in sorted(meta_graph.signature_def.items())
        },
        bounded=_bounded(meta_graph.graph_def, signatures),
        restore_op=_node_name(saver.restore_op_name),
        filename_tensor=saver.filename_tensor_name,
        variables=str(directory.joinpath(*_VARIABLES)),
        init_op=_init_op(meta_graph, directory),
        assets=dict(_assets(meta_graph, directory)),
        written_by=info.tensorflow_version,
        producer_ops=info.stripped_op_list.SerializeToString(),
        pieces=tuple(segments.split_graph(meta_graph.graph_def, _tensors(signatures))),
    )


def _read(directory: Path, tag_set: TagSet) -> Any:
    """The MetaGraphDef with exactly these tags."""
    # Only the messages of it.
    from tensorflow.core.protobuf import saved_model_pb2

    path = proto_file.find_saved_model_file(directory)
    proto = saved_model_pb2.SavedModel()
    try:
        if path.name == proto_file.TEXT_NAME:
            text_format.Parse(path.read_text(encoding="utf-8"), proto)
        else:
            proto.ParseFromString(path.read_bytes())
    except OSError as error:
        raise proto_file.unreadable_error(path, error) from error
    except (DecodeError, text_format.ParseError, ValueError, RecursionError) as error:
        raise DamagedSavedModel(
            f"cannot load {directory}: {error}. Export the model again."
        ) from error
    for each in proto.meta_graphs:
        if frozenset(each.meta_info_def.tags) == tag_set:
            return each
    # The file was another one when it was looked at.
    raise DamagedSavedModel(f"cannot load {directory}: it changes while it is read.")


def _bounded(graph: Any, signatures: Mapping[str, Signature]) -> frozenset[str]:
    return frozenset(
        name
        for name, each in signatures.items()
        if static_cost.has_static_cost(graph, [output.name for output in each.outputs.values()])
    )


def _init_op(meta_graph: Any, directory: Path) -> str:
    if _INIT_SIGNATURE in meta_graph.signature_def:
        outputs = meta_graph.signature_def[_INIT_SIGNATURE].outputs
        if _INIT_SIGNATURE in outputs:
            return _node_name(outputs[_INIT_SIGNATURE].name)
    for name in _INIT_COLLECTIONS:
        if name in meta_graph.collection_def:
            found = meta_graph.collection_def[name].node_list.value
            if len(found) != 1:
                raise DamagedSavedModel(
                    f"cannot load {directory}: {name} names {len(found)} ops, and one is to "
                    f"initialise it. Export the model again."
                )
            return _node_name(found[0])
    return ""


def _assets(meta_graph: Any, directory: Path) -> Iterator[tuple[str, str]]:
    from tensorflow.core.protobuf import meta_graph_pb2

    listed = list(meta_graph.asset_file_def)
    if not listed and "saved_model_assets" in meta_graph.collection_def:
        for each in meta_graph.collection_def["saved_model_assets"].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if each.Unpack(asset):
                listed.append(asset)
    for asset in listed:
        name = PurePosixPath(asset.filename)
        # What is read as an asset must be one.
        if name.is_absolute() or ".." in name.parts:
            raise DamagedSavedModel(
                f"cannot load {directory}: its asset {asset.filename} is outside of {_ASSETS}/. "
                f"Export the model again."
            )
        yield asset.tensor_info.name, str(directory / _ASSETS / name)


def _tensors(signatures: Mapping[str, Signature]) -> set[str]:
    return {
        _node_name(spec.name)
        for each in signatures.values()
        for spec in (*each.inputs.values(), *each.outputs.values())
    }


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
