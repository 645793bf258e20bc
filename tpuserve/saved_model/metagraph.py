"""Describes the metagraphs of a SavedModel from its files, without loading the model.

TensorFlow is not imported.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpuserve.errors import DamagedSavedModel
from tpuserve.graph import graph_walk
from tpuserve.graph.graph_walk import called_functions as called_functions
from tpuserve.graph.state_writes import WriteFinder
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import (
    dtypes,
    missing_files,
    proto_file,
    stablehlo_modules,
    variables,
    warm_up_file,
)
from tpuserve.saved_model.proto_file import find_saved_model_file
from tpuserve.saved_model.signature import INIT_SIGNATURE, Signature, TensorSpec
from tpuserve.saved_model.stablehlo_modules import StableHloModule
from tpuserve.saved_model.variables import DeclaredVariable, shape_from_proto
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.tags import TPU, TagSet


def signature_from_proto(proto: Any) -> Signature:
    """Convert a SignatureDef message to a Signature, whose aliases are sorted.

    A composite tensor, such as a ragged one, gets the dtype of its first component, which has the
    values, and an unknown shape.
    """
    return Signature(_specs(proto.inputs), _specs(proto.outputs), proto.method_name)


def _specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {alias: _spec(info) for alias, info in sorted(infos.items())}


def _spec(info: Any) -> TensorSpec:
    components = info.composite_tensor.components
    if components:
        return TensorSpec("", dtypes.dtype_name(components[0].dtype), None)
    shape = shape_from_proto(info.tensor_shape)
    return TensorSpec(info.name, dtypes.dtype_name(info.dtype), shape)


_BATCH_OP = "BatchFunction"
# The default value of the attribute max_enqueued_batches of BatchFunction, for nodes without the
# attribute. Source: tensorflow/core/ops/batch_ops.cc.
_DEFAULT_ENQUEUED_BATCHES = 10

_EXTRA = "assets.extra"


@dataclass(frozen=True)
class TpuComputation:
    """A TPU computation of a metagraph: the function of one TPUPartitionedCall op.

    Attributes:
      tpu_ops: op type → number of ops that run on the TPU.
      host_ops: op type → number of ops in the function that run on the host: ops of
        tpu.outside_compilation, ops in the functions that these ops call, and ops that are not in
        the part that `tpu.rewrite` compiles for the TPU.
    """

    name: str
    tpu_ops: Mapping[str, int]
    host_ops: Mapping[str, int]
    batched_by: str


@dataclass(frozen=True)
class BatchFunction:
    """A BatchFunction op, which merges concurrent requests into batches.

    Attributes:
      max_batch_size: the largest number of examples in a batch.
      batch_timeout_micros: how long a batch waits for more requests, in microseconds.
      allowed_batch_sizes: the batch sizes to which batches are padded, in increasing order; empty
        if batches are not padded.
      max_enqueued_batches: the largest number of batches in the queue. When the queue is full,
        requests are refused.
    """

    name: str
    function: str
    num_batch_threads: int
    max_batch_size: int
    batch_timeout_micros: int
    allowed_batch_sizes: tuple[int, ...]
    max_enqueued_batches: int


@dataclass(frozen=True)
class Metagraph:
    """The description of a metagraph of a SavedModel.

    Attributes:
      host_ops: op type → number of ops outside of TPU computations.
      stablehlo_modules: the StableHLO modules of the XlaCallModule ops, in graph order.
    """

    tags: TagSet
    signatures: Mapping[str, Signature]
    host_ops: Mapping[str, int]
    computations: tuple[TpuComputation, ...]
    batch_functions: tuple[BatchFunction, ...]
    variables: tuple[DeclaredVariable, ...]
    stablehlo_modules: tuple[StableHloModule, ...]
    assets: tuple[str, ...]
    tensorflow_version: str

    @property
    def has_tpu_computation(self) -> bool:
        """Whether the graph has TPU ops, with which it cannot run on a CPU.

        The tags are no evidence: some exporters save a graph with TPU ops under {serve} too.
        """
        return bool(self.computations) or graph_walk.REPLICATE_METADATA in self.host_ops


@dataclass(frozen=True)
class SavedModel:
    """The description of a SavedModel on disk.

    Attributes:
      variables_bytes: the size of all files below variables/ in bytes.
      warm_up: the warm-up requests; empty if the warm-up file is damaged.
      problems: one sentence for each problem that prevents loading or serving: missing or truncated
        variables, missing assets, and a damaged warm-up file.
    """

    directory: Path
    metagraphs: tuple[Metagraph, ...]
    graph_bytes: int
    variables_bytes: int
    warm_up: tuple[WarmUpRecord, ...]
    extra_files: tuple[str, ...]
    problems: tuple[str, ...]


def read_saved_model(directory: str | os.PathLike[str]) -> SavedModel:
    """Describe the SavedModel in a directory."""
    directory = Path(directory)
    path = find_saved_model_file(directory)
    proto = proto_file.parse_saved_model_file(path)
    try:
        warm_up, problem = _warm_up(directory)
        return SavedModel(
            directory=directory,
            metagraphs=tuple(_describe(meta_graph) for meta_graph in proto.meta_graphs),
            graph_bytes=path.stat().st_size,
            variables_bytes=sum(
                path.stat().st_size for path in _files(directory / missing_files.VARIABLES)
            ),
            warm_up=warm_up,
            extra_files=_names(directory / _EXTRA),
            problems=(
                *missing_files.describe_missing_files(directory, proto.meta_graphs),
                *problem,
            ),
        )
    except OSError as error:
        raise proto_file.unreadable_error(Path(error.filename or directory), error) from error


def read_metagraphs(directory: str | os.PathLike[str]) -> tuple[Metagraph, ...]:
    """Describe the metagraphs of a SavedModel; read only its saved_model.pb and no other file."""
    proto = proto_file.parse_saved_model_file(find_saved_model_file(Path(directory)))
    return tuple(_describe(meta_graph) for meta_graph in proto.meta_graphs)


def untagged_tpu_graphs(metagraphs: Iterable[Metagraph]) -> tuple[TagSet, ...]:
    """Return the tag sets of the metagraphs that have TPU computations but not the tag "tpu"."""
    return tuple(
        metagraph.tags
        for metagraph in metagraphs
        if TPU not in metagraph.tags and metagraph.has_tpu_computation
    )


def _describe(proto: pb.MetaGraphDef) -> Metagraph:
    library = proto.graph_def.library
    functions = {function.signature.name: function for function in library.function}
    nodes = graph_walk.walk_graph(proto.graph_def, functions)
    main = {node.name: node for node in proto.graph_def.node}
    writes = WriteFinder(functions)
    batched_by: dict[str, str] = {}
    batch_functions = []
    for node in nodes.on_host:
        if node.op == _BATCH_OP:
            batch_functions.append(_batch_function(node))
            for name in graph_walk.walk_function(node.attr["f"].func.name, functions).tpu_calls:
                batched_by.setdefault(name, node.attr["f"].func.name)
    computations = {name: graph_walk.walk_computation(name, functions) for name in nodes.tpu_calls}
    on_tpu = [node for ops in computations.values() for node in ops.on_tpu]
    on_host = [*nodes.on_host, *(node for ops in computations.values() for node in ops.on_host)]
    return Metagraph(
        tags=frozenset(proto.meta_info_def.tags),
        signatures={
            name: replace(
                signature_from_proto(signature_def),
                write=writes.in_signature(signature_def, main),
            )
            for name, signature_def in sorted(proto.signature_def.items())
            if name != INIT_SIGNATURE
        },
        host_ops=_count(nodes.on_host),
        computations=tuple(
            TpuComputation(name, _count(ops.on_tpu), _count(ops.on_host), batched_by.get(name, ""))
            for name, ops in computations.items()
        ),
        batch_functions=tuple(batch_functions),
        variables=variables.declared_variables([*on_host, *on_tpu]),
        stablehlo_modules=tuple(
            stablehlo_modules.describe_module(node, is_on_tpu=is_on_tpu)
            for nodes, is_on_tpu in ((on_host, False), (on_tpu, True))
            for node in nodes
            if node.op == stablehlo_modules.CALL_MODULE
        ),
        assets=proto_file.asset_names(proto),
        tensorflow_version=proto.meta_info_def.tensorflow_version,
    )


def _count(nodes: Iterable[pb.NodeDef]) -> Counter[str]:
    return Counter(node.op for node in nodes)


def _batch_function(node: pb.NodeDef) -> BatchFunction:
    enqueued = _DEFAULT_ENQUEUED_BATCHES
    if "max_enqueued_batches" in node.attr:
        enqueued = node.attr["max_enqueued_batches"].i
    return BatchFunction(
        name=node.name,
        function=node.attr["f"].func.name,
        num_batch_threads=node.attr["num_batch_threads"].i,
        max_batch_size=node.attr["max_batch_size"].i,
        batch_timeout_micros=node.attr["batch_timeout_micros"].i,
        allowed_batch_sizes=tuple(node.attr["allowed_batch_sizes"].list.i),
        max_enqueued_batches=enqueued,
    )


def _files(directory: Path) -> list[Path]:
    paths = (Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return [path for path in paths if path.is_file()]


def _names(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(directory).as_posix() for path in _files(directory)))


def _warm_up(directory: Path) -> tuple[tuple[WarmUpRecord, ...], tuple[str, ...]]:
    try:
        return warm_up_file.read_warm_up_file(directory), ()
    except DamagedSavedModel as error:
        return (), (str(error),)
