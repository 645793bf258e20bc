"""What a SavedModel holds, read from its files alone: no TensorFlow, nothing loaded."""

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tpuserve import dtypes
from tpuserve.errors import DamagedSavedModel, SavedModelNotFound
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.signature import Signature, TensorSpec
from tpuserve.tags import TagSet

BINARY_NAME = "saved_model.pb"
TEXT_NAME = "saved_model.pbtxt"
HOST_ATTRIBUTE = "_xla_outside_compilation"

# TensorFlow adds this entry to the signatures of a model made by its version 2; it names the
# initialisation op and is nothing that a client can call.
_INIT_OP_SIGNATURE = "__saved_model_init_op"


@dataclass(frozen=True)
class Computation:
    """One TPU computation of a metagraph: what a single TPUPartitionedCall runs.

    Attributes:
      name: the function that is called.
      tpu_ops: op type → how many of it run on the TPU.
      host_ops: the same for the ops inside that an outside compilation puts on the host.
    """

    name: str
    tpu_ops: Mapping[str, int]
    host_ops: Mapping[str, int]


@dataclass(frozen=True)
class Metagraph:
    """One graph of a SavedModel.

    Attributes:
      tags: its tag set.
      signatures: name → what it takes and gives.
      host_ops: op type → how many of it run outside any TPU computation.
      computations: the TPU computations, in the order in which the graph names them.
      assets: file names below assets/.
      tensorflow_version: the version that wrote it.
    """

    tags: TagSet
    signatures: Mapping[str, Signature]
    host_ops: Mapping[str, int]
    computations: tuple[Computation, ...]
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
    """

    directory: Path
    metagraphs: tuple[Metagraph, ...]
    graph_bytes: int
    variables_bytes: int


def read(directory: str | os.PathLike[str]) -> SavedModel:
    """The description of the SavedModel in a directory.

    Raises:
      SavedModelNotFound: the directory, or a saved_model.pb in it, is not there.
      DamagedSavedModel: the file cannot be parsed, or holds no metagraph.
    """
    directory = Path(directory)
    path = find_file(directory)
    proto = _parse(path)
    if not proto.meta_graphs:
        raise DamagedSavedModel(f"{path} holds no metagraph. Export the model again.")
    return SavedModel(
        directory=directory,
        metagraphs=tuple(_describe(each) for each in proto.meta_graphs),
        graph_bytes=path.stat().st_size,
        variables_bytes=sum(
            each.stat().st_size for each in (directory / "variables").glob("*") if each.is_file()
        ),
    )


def find_file(directory: Path) -> Path:
    """The saved_model.pb of a directory, or its saved_model.pbtxt.

    Raises:
      SavedModelNotFound: neither is there.
    """
    for name in (BINARY_NAME, TEXT_NAME):
        if (directory / name).is_file():
            return directory / name
    if directory.is_file():
        raise SavedModelNotFound(
            f"{directory} is a file. Name the directory that holds a {BINARY_NAME}, such as "
            f"{directory.parent}."
        )
    if not directory.is_dir():
        raise SavedModelNotFound(
            f"no directory {directory}. Name a directory that holds a {BINARY_NAME}."
        )
    versions = sorted(
        (each.name for each in directory.iterdir() if (each / BINARY_NAME).is_file()), key=str
    )
    if versions:
        raise SavedModelNotFound(
            f"no {BINARY_NAME} in {directory}; found version directories {', '.join(versions)}. "
            f"Name one of them: {directory / versions[-1]}"
        )
    raise SavedModelNotFound(
        f"no {BINARY_NAME} in {directory}. Name a directory that holds one, as "
        f"export_saved_model returns it."
    )


def _parse(path: Path) -> pb.SavedModel:
    proto = pb.SavedModel()
    try:
        if path.name == TEXT_NAME:
            text_format.Parse(path.read_text(), proto, allow_unknown_field=True)
        else:
            proto.ParseFromString(path.read_bytes())
    except OSError as error:
        raise DamagedSavedModel(
            f"{path} cannot be read: {error.strerror}. Make it readable for this user."
        ) from error
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise DamagedSavedModel(
            f"{path} is no SavedModel, or a damaged one ({error}). Export the model again."
        ) from error
    return proto


def _describe(proto: pb.MetaGraphDef) -> Metagraph:
    functions = {each.signature.name: each for each in proto.graph_def.library.function}
    host, calls = _walk(proto.graph_def.node, functions)
    return Metagraph(
        tags=frozenset(proto.meta_info_def.tags),
        signatures={
            name: _signature(each)
            for name, each in sorted(proto.signature_def.items())
            if name != _INIT_OP_SIGNATURE
        },
        host_ops=Counter(node.op for node in host),
        computations=tuple(_computation(name, functions) for name in calls),
        assets=tuple(each.filename for each in proto.asset_file_def),
        tensorflow_version=proto.meta_info_def.tensorflow_version,
    )


def _computation(name: str, functions: Mapping[str, pb.FunctionDef]) -> Computation:
    body = functions[name].node_def if name in functions else []
    nodes, _ = _walk(body, functions)
    return Computation(
        name=name,
        tpu_ops=Counter(node.op for node in nodes if HOST_ATTRIBUTE not in node.attr),
        host_ops=Counter(node.op for node in nodes if HOST_ATTRIBUTE in node.attr),
    )


def _walk(
    nodes: Iterable[pb.NodeDef], functions: Mapping[str, pb.FunctionDef]
) -> tuple[list[pb.NodeDef], list[str]]:
    """All nodes that run with these, called functions included, and the TPU functions called."""
    found: list[pb.NodeDef] = []
    tpu_calls: list[str] = []
    seen: set[str] = set()
    pending = deque(nodes)
    while pending:
        node = pending.popleft()
        found.append(node)
        if node.op == "TPUPartitionedCall":
            tpu_calls.append(node.attr["f"].func.name)
            continue
        for name in functions_of(node):
            if name in functions and name not in seen:
                seen.add(name)
                pending.extend(functions[name].node_def)
    return found, list(dict.fromkeys(tpu_calls))


def functions_of(node: pb.NodeDef) -> Iterator[str]:
    """The names of the functions that a node's attributes call."""
    for attribute in node.attr.values():
        kind = attribute.WhichOneof("value")
        if kind == "func":
            yield attribute.func.name
        elif kind == "list":
            yield from (each.name for each in attribute.list.func)


def _signature(proto: pb.SignatureDef) -> Signature:
    return Signature(
        inputs={name: _spec(each) for name, each in sorted(proto.inputs.items())},
        outputs={name: _spec(each) for name, each in sorted(proto.outputs.items())},
        method_name=proto.method_name,
    )


def _spec(proto: pb.TensorInfo) -> TensorSpec:
    shape = None
    if not proto.tensor_shape.unknown_rank:
        shape = tuple(None if dim.size < 0 else dim.size for dim in proto.tensor_shape.dim)
    return TensorSpec(proto.name, dtypes.name_of(proto.dtype), shape)
