"""What there is to compile: each signature at each batch size, as pieces of the lowered graph."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.compilation.translation.abstract_tensor import AbstractTensor
from tpuserve.compilation.translation.cluster_finder import ClusterFinder, XlaCluster
from tpuserve.errors import InvalidInput, MetagraphNotFound, SignatureNotFound
from tpuserve.lowering import lower
from tpuserve.saved_model import metagraph
from tpuserve.saved_model.batch_functions import allowed_batch_sizes
from tpuserve.saved_model.signature import Signature
from tpuserve.tensorflow_internals import saved_model_loader

DEFAULT_BATCH_SIZES = (1, 8, 64)


@dataclass(frozen=True)
class CompileRequest:
    """One signature at one batch size, and what it has a TPU compute.

    Attributes:
      signature: its name.
      batch_size: in rows.
      pieces: with arguments that are known in all dimensions.
      error: why there are no pieces; None where there are.
    """

    signature: str
    batch_size: int
    pieces: tuple[XlaCluster, ...]
    error: str | None = None


@dataclass(frozen=True)
class CompilePlan:
    """What there is to compile.

    Attributes:
      graph: the lowered graph.
      requests: in the order of signatures and batch sizes.
      notes: what was assumed or left out.
    """

    graph: Any
    requests: tuple[CompileRequest, ...]
    notes: tuple[str, ...]


def plan_compilations(
    directory: Path,
    signature_names: Sequence[str] | None,
    batch_sizes: Sequence[int] | None,
    unknown_dimension: int,
) -> CompilePlan:
    """What there is to compile of a SavedModel's TPU metagraph.

    Args:
      directory: holds saved_model.pb.
      signature_names: which; None for all.
      batch_sizes: in rows; None for those that the model's batch functions allow, else 1, 8, 64.
      unknown_dimension: what a dimension is taken as that nothing tells.

    Raises:
      SavedModelNotFound, DamagedSavedModel, MetagraphNotFound, SignatureNotFound: nothing there.
      LoweringError: an op has no form here.
      InvalidInput: no signature has a TPU compute anything, or one takes no such batch size.
    """
    found, graph = _lowered(directory)
    notes: dict[str, None] = {}
    requests: list[CompileRequest] = []
    for name in signature_names or sorted(found):
        if name not in found:
            raise SignatureNotFound(
                f"no signature {name!r} in metagraph {tag_sets.format_tags(tag_sets.SERVE_TPU)} of "
                f"{directory}; found {', '.join(sorted(found)) or 'none'}. Name one of them."
            )
        signature = found[name]
        sizes = _batch_sizes(name, signature, batch_sizes, graph)
        made = [_request(graph, name, signature, size, notes) for size in sizes]
        if not any(each.pieces or each.error for each in made):
            notes[f"signature {name!r} has a TPU compute nothing"] = None
            continue
        requests += [_closed(each, unknown_dimension, notes) for each in made]
    if not requests:
        raise InvalidInput(
            f"metagraph {tag_sets.format_tags(tag_sets.SERVE_TPU)} of {directory} has a TPU "
            f"compute nothing: no signature leads to a TPUPartitionedCall. Put the model on "
            f"the TPU as it is exported; see docs/export.md."
        )
    return CompilePlan(graph, tuple(requests), tuple(notes))


def _lowered(directory: Path) -> tuple[dict[str, Signature], Any]:
    described = {each.tags: each for each in metagraph.read_metagraphs(directory)}
    if tag_sets.SERVE_TPU not in described:
        available = ", ".join(sorted(tag_sets.format_tags(each) for each in described))
        raise MetagraphNotFound(
            f"no metagraph tagged {tag_sets.format_tags(tag_sets.SERVE_TPU)} in {directory}; found "
            f"{available}. Export with export_to_tpu=True."
        )
    saved_model = saved_model_loader.parse_saved_model(str(directory))
    (proto,) = (
        each
        for each in saved_model.meta_graphs
        if frozenset(each.meta_info_def.tags) == tag_sets.SERVE_TPU
    )
    return dict(described[tag_sets.SERVE_TPU].signatures), _anywhere(lower(proto.graph_def))


def _anywhere(graph: Any) -> Any:
    """The graph without wishes to be where another node is, which a piece of it may not have."""
    for nodes in (graph.node, *(each.node_def for each in graph.library.function)):
        for node in nodes:
            node.attr.pop("_class", None)
    return graph


def _batch_sizes(
    name: str, signature: Signature, asked: Sequence[int] | None, graph: Any
) -> list[int]:
    fixed = {
        spec.shape[0]
        for spec in signature.inputs.values()
        if spec.shape and spec.shape[0] is not None
    }
    has_open = any(
        spec.shape is None or (spec.shape and spec.shape[0] is None)
        for spec in signature.inputs.values()
    )
    if has_open or not fixed:
        return list(dict.fromkeys(asked or allowed_batch_sizes(graph) or DEFAULT_BATCH_SIZES))
    size = max(fixed)
    if asked and set(asked) != {size}:
        raise InvalidInput(
            f"signature {name!r} takes batches of {size} rows, not of "
            f"{', '.join(map(str, asked))}. Leave the batch size out, or export with an open one."
        )
    return [size]


def _request(
    graph: Any, name: str, signature: Signature, batch_size: int, notes: dict[str, None]
) -> CompileRequest:
    fed = {
        spec.name: _argument(spec.dtype, spec.shape).with_rows(batch_size)
        for spec in signature.inputs.values()
    }
    tracer = ClusterFinder(graph)
    try:
        tracer.trace(fed, [spec.name for spec in signature.outputs.values()])
    except InvalidInput as error:
        return CompileRequest(name, batch_size, (), str(error))
    notes.update({f"signature {name!r}: {each}": None for each in tracer.padded})
    return CompileRequest(name, batch_size, tuple(tracer.pieces))


def _argument(dtype: str, shape: tuple[int | None, ...] | None) -> AbstractTensor:
    return AbstractTensor(tf.as_dtype(dtype), shape)


def _closed(
    request: CompileRequest, unknown_dimension: int, notes: dict[str, None]
) -> CompileRequest:
    """The request with a number in place of each dimension that is not known."""
    pieces = []
    for piece in request.pieces:
        arguments = []
        for each in piece.arguments:
            shape = each.shape if each.variable is None else each.variable.shape
            if shape is None or (each.variable is not None and None in shape):
                what = f"variable {each.variable.name!r}" if each.variable else "an input"
                return CompileRequest(
                    request.signature,
                    request.batch_size,
                    (),
                    f"the shape of {what} of {piece.function} is not known before the model runs. "
                    f"Set it as the model is exported.",
                )
            if each.variable is None and None in shape:
                closed = tuple(
                    size or (request.batch_size if axis == 0 else unknown_dimension)
                    for axis, size in enumerate(shape)
                )
                shown = ", ".join("?" if size is None else str(size) for size in shape)
                notes[
                    f"signature {request.signature!r}: an input of {piece.function} is "
                    f"{each.dtype.name} [{shown}] at batch size {request.batch_size}, and was "
                    f"compiled as {list(closed)}"
                ] = None
                each = dataclasses.replace(each, shape=closed)
            arguments.append(each)
        pieces.append(dataclasses.replace(piece, arguments=tuple(arguments)))
    return dataclasses.replace(request, pieces=tuple(pieces))
