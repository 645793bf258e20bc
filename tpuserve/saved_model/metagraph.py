"""What a SavedModel holds, read from its files alone: no TensorFlow, nothing loaded."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tpuserve.errors import DamagedSavedModel
from tpuserve.graph import graph_walk
from tpuserve.graph.graph_walk import called_functions as called_functions
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import dtypes, missing_files, proto_file, variables, warm_up_file
from tpuserve.saved_model.proto_file import find_saved_model_file
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.variables import DeclaredVariable
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.tags import TagSet

# TensorFlow adds this entry to the signatures of a model made by its version 2; it names the
# initialisation op and is nothing that a client can call.
_INIT_OP_SIGNATURE = "__saved_model_init_op"

_BATCH_OP = "BatchFunction"
# What a graph leaves out when it is the op's default. Source: tensorflow/core/ops/batch_ops.cc.
_DEFAULT_ENQUEUED_BATCHES = 10

_EXTRA = "assets.extra"


@dataclass(frozen=True)
class TpuComputation:
    """One TPU computation of a metagraph: what a single TPUPartitionedCall runs.

    Attributes:
      name: the function that is called.
      tpu_ops: op type → how many of it run on the TPU.
      host_ops: the same for the ops inside that the host runs: those of an outside compilation,
        those that they call, and those beside the cluster that `tpu.rewrite` made.
      batched_by: the function of the batch function that calls it; "" if none does.
    """

    name: str
    tpu_ops: Mapping[str, int]
    host_ops: Mapping[str, int]
    batched_by: str


@dataclass(frozen=True)
class BatchFunction:
    """Where a metagraph gathers requests into batches by itself.

    Attributes:
      name: the node.
      function: what runs a batch.
      num_batch_threads: batches that run at once.
      max_batch_size: in rows.
      batch_timeout_micros: how long a batch waits to be filled.
      allowed_batch_sizes: in rows, increasing; a batch is padded to the next. Empty: any size.
      max_enqueued_batches: more are refused.
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
    """One graph of a SavedModel.

    Attributes:
      tags: its tag set.
      signatures: name → what it takes and gives.
      host_ops: op type → how many of it run outside any TPU computation.
      computations: the TPU computations, in the order in which the graph names them.
      batch_functions: in the order in which the graph names them.
      variables: what it declares, by name.
      assets: file names below assets/.
      tensorflow_version: the version that wrote it.
    """

    tags: TagSet
    signatures: Mapping[str, Signature]
    host_ops: Mapping[str, int]
    computations: tuple[TpuComputation, ...]
    batch_functions: tuple[BatchFunction, ...]
    variables: tuple[DeclaredVariable, ...]
    assets: tuple[str, ...]
    tensorflow_version: str


@dataclass(frozen=True)
class SavedModel:
    """A SavedModel as it lies on disk.

    Attributes:
      directory: where it is.
      metagraphs: in the order of the file.
      graph_bytes: size of saved_model.pb.
      variables_bytes: size of all files below variables/.
      warm_up: the requests that a server is to run before it answers; empty also where their
        file is damaged, which is one of the problems.
      extra_files: paths below assets.extra/, sorted.
      problems: what keeps it from being loaded or served although the graph can be read: files
        of variables or assets that are missing, a damaged warm-up file. A sentence each.
    """

    directory: Path
    metagraphs: tuple[Metagraph, ...]
    graph_bytes: int
    variables_bytes: int
    warm_up: tuple[WarmUpRecord, ...]
    extra_files: tuple[str, ...]
    problems: tuple[str, ...]


def read_saved_model(directory: str | os.PathLike[str]) -> SavedModel:
    """The description of the SavedModel in a directory.

    Raises:
      SavedModelNotFound: the directory, or a saved_model.pb in it, is not there.
      DamagedSavedModel: the file cannot be parsed or holds no metagraph, or the system gives no
        access to a directory.
    """
    directory = Path(directory)
    path = find_saved_model_file(directory)
    proto = proto_file.parse_saved_model_file(path)
    try:
        warm_up, problem = _warm_up(directory)
        return SavedModel(
            directory=directory,
            metagraphs=tuple(_describe(each) for each in proto.meta_graphs),
            graph_bytes=path.stat().st_size,
            variables_bytes=sum(
                each.stat().st_size for each in _files(directory / missing_files.VARIABLES)
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
    """The metagraphs of the SavedModel in a directory, without a look at any other file.

    Raises:
      SavedModelNotFound, DamagedSavedModel: as `read`.
    """
    proto = proto_file.parse_saved_model_file(find_saved_model_file(Path(directory)))
    return tuple(_describe(each) for each in proto.meta_graphs)


def _describe(proto: pb.MetaGraphDef) -> Metagraph:
    functions = {each.signature.name: each for each in proto.graph_def.library.function}
    nodes = graph_walk.walk_graph(proto.graph_def, functions)
    batched_by: dict[str, str] = {}
    batch_functions = []
    for node in nodes.on_host:
        if node.op == _BATCH_OP:
            batch_functions.append(_batch_function(node))
            for name in graph_walk.walk_function(node.attr["f"].func.name, functions).tpu_calls:
                batched_by.setdefault(name, node.attr["f"].func.name)
    within = {name: graph_walk.walk_computation(name, functions) for name in nodes.tpu_calls}
    declaring = [*nodes.on_host]
    for each in within.values():
        declaring += each.on_tpu + each.on_host
    return Metagraph(
        tags=frozenset(proto.meta_info_def.tags),
        signatures={
            name: _signature(each)
            for name, each in sorted(proto.signature_def.items())
            if name != _INIT_OP_SIGNATURE
        },
        host_ops=_count(nodes.on_host),
        computations=tuple(
            TpuComputation(
                name, _count(each.on_tpu), _count(each.on_host), batched_by.get(name, "")
            )
            for name, each in within.items()
        ),
        batch_functions=tuple(batch_functions),
        variables=variables.declared_variables(declaring),
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


def _signature(proto: pb.SignatureDef) -> Signature:
    return Signature(
        inputs={name: _spec(each) for name, each in sorted(proto.inputs.items())},
        outputs={name: _spec(each) for name, each in sorted(proto.outputs.items())},
        method_name=proto.method_name,
    )


def _spec(proto: pb.TensorInfo) -> TensorSpec:
    shape = variables.shape_from_proto(proto.tensor_shape)
    return TensorSpec(proto.name, dtypes.dtype_name(proto.dtype), shape)


def _files(directory: Path) -> list[Path]:
    found = (Path(place, name) for place, _, names in os.walk(directory) for name in names)
    return [each for each in found if each.is_file()]


def _names(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(each.relative_to(directory).as_posix() for each in _files(directory)))


def _warm_up(directory: Path) -> tuple[tuple[WarmUpRecord, ...], tuple[str, ...]]:
    try:
        return warm_up_file.read_warm_up_file(directory), ()
    except DamagedSavedModel as error:
        return (), (str(error),)
