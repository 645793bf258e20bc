"""Plans the load of a model: selects and reads a metagraph, and prepares it for its runtime.

Planning is separate from loading, so that a server can plan in a subprocess and answer requests
meanwhile. Planning needs only TensorFlow's protobuf message classes, not TensorFlow itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tpuserve.devices import TpuSystem
from tpuserve.errors import DamagedSavedModel
from tpuserve.runtime.registry import get_runtime
from tpuserve.saved_model import (
    initialisation,
    metagraph,
    op_packages,
    proto_file,
    stablehlo_modules,
)
from tpuserve.saved_model.op_packages import NO_IMPORTS, ImportedOps
from tpuserve.saved_model.signature import Signature
from tpuserve.select import MetaGraphSelection, select_metagraph
from tpuserve.tags import TagSet, format_tags
from tpuserve.untrusted.model_check import check_model


@dataclass(frozen=True)
class LoadRequest:
    """The arguments of `tpuserve.runtime.loader.load` on which the plan of a load depends.

    Attributes:
      wanted_tags: the exact tag set of the metagraph; None lets `select_metagraph` choose.
      forbid_unsafe_ops: whether to refuse ops that may do more than compute, such as read files.
      runtime: the name of the runtime; None for the default runtime.
      max_constant_bytes: the memory, in bytes, that constants and tensors computed from them may
        need in addition to the size of the constants in the file; 0 for no limit.
      imported_ops: the ops that the process that loads the model has in addition to TensorFlow's.
    """

    directory: Path
    wanted_tags: TagSet | None
    hardware: TpuSystem
    fallback_to_cpu: bool = False
    forbid_unsafe_ops: bool = False
    runtime: str | None = None
    max_constant_bytes: int = 0
    imported_ops: ImportedOps = NO_IMPORTS


@dataclass(frozen=True)
class LoadPlan:
    """A metagraph that was selected and prepared, and is ready to be loaded.

    Attributes:
      signatures: signature name → signature, without the default values of its inputs. These are
        read from `signature_defs` when the model is loaded.
    """

    choice: MetaGraphSelection
    signatures: Mapping[str, Signature]
    signature_defs: Mapping[str, bytes]
    runtime_plan: Any = field(repr=False)


def make_load_plan(request: LoadRequest) -> LoadPlan:
    """Select a metagraph, check it, and prepare it for its runtime.

    Raises:
      OpsNotImported: the model has ops of known packages that are not imported.
    """
    directory = request.directory
    metagraphs = {
        description.tags: description for description in metagraph.read_metagraphs(directory)
    }
    choice = select_metagraph(
        metagraphs.keys(),
        request.wanted_tags,
        request.hardware,
        where=str(directory),
        untagged_tpu_graphs=metagraph.untagged_tpu_graphs(metagraphs.values()),
        fallback_to_cpu=request.fallback_to_cpu,
        runtime=request.runtime,
    )
    stablehlo_modules.check_platforms(
        metagraphs[choice.tags].stablehlo_modules,
        choice.device,
        f"{format_tags(choice.tags)} of {directory}",
    )
    runtime = get_runtime(choice.runtime)
    meta_graphs = _read_meta_graphs(directory)
    # Check the model here, before it is loaded: loading runs ops of the model, in order to compute
    # constants and to initialise tables.
    check_model(
        meta_graphs.values(),
        directory,
        forbid_unsafe_ops=request.forbid_unsafe_ops,
        max_constant_bytes=request.max_constant_bytes,
        imported_ops=request.imported_ops,
    )
    op_packages.check_imported(meta_graphs.values(), request.imported_ops, directory)
    if choice.tags not in meta_graphs:
        raise DamagedSavedModel(
            f"cannot load {directory}: its graph changed while it was read. Load the model again."
        )
    meta_graph = meta_graphs[choice.tags]
    initialisation.insert_asset_paths(meta_graph, directory)
    signatures = metagraphs[choice.tags].signatures
    return LoadPlan(
        choice=choice,
        signatures=signatures,
        signature_defs={
            name: signature_def.SerializeToString()
            for name, signature_def in sorted(meta_graph.signature_def.items())
        },
        runtime_plan=runtime.make_plan(meta_graph, directory, choice, signatures),
    )


def _read_meta_graphs(directory: Path) -> dict[TagSet, Any]:
    """Read the MetaGraphDef messages of a SavedModel: tags → TensorFlow's message."""
    # In the subprocess that plans a load for a server, `tensorflow` is a stub package. This import
    # then loads only TensorFlow's protobuf messages and not TensorFlow itself.
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
    return {
        frozenset(meta_graph.meta_info_def.tags): meta_graph for meta_graph in proto.meta_graphs
    }
