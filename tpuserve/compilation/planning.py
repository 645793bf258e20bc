"""Plans the compilation of a SavedModel: finds the XLA clusters to compile.

An XLA cluster is a function of the graph that XLA compiles as a whole. Its argument shapes depend
on the signature and on the batch size.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.errors import InvalidInput, MetagraphNotFound, SignatureNotFound
from tpuserve.lowering import lower
from tpuserve.saved_model import metagraph
from tpuserve.saved_model.batch_functions import allowed_batch_sizes
from tpuserve.saved_model.inspection.conversion_advice import convert_command
from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo.abstract_tensor import AbstractTensor
from tpuserve.stablehlo.cluster_finder import ClusterFinder, XlaCluster
from tpuserve.tensorflow_internals import saved_model_loader

DEFAULT_BATCH_SIZES = (1, 8, 64)

_TAGS = tag_sets.format_tags(tag_sets.SERVE_TPU)


@dataclass(frozen=True)
class CompileRequest:
    """One signature at one batch size, with the XLA clusters that it runs on the TPU.

    Attributes:
      signature: Name of the signature.
      batch_size: Number of examples in a batch.
      clusters: The XLA clusters. In a `CompilePlan`, their arguments have fully known shapes.
      error: Why the clusters or their argument shapes are unknown; None if they are known.
    """

    signature: str
    batch_size: int
    clusters: tuple[XlaCluster, ...]
    error: str | None = None


@dataclass(frozen=True)
class CompilePlan:
    """The compilations that a SavedModel needs.

    Attributes:
      graph: The GraphDef of the TPU metagraph. Its TPU ops are replaced by ops that have CPU
        kernels.
      requests: Each signature at each batch size to compile, sorted by signature.
      notes: Sentences about assumptions, such as replaced unknown dimensions, and about signatures
        that the plan leaves out.
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
    """Plan the compilations of a SavedModel's TPU metagraph.

    Args:
      directory: Directory with a saved_model.pb.
      signature_names: Signatures to compile; None for all.
      batch_sizes: Batch sizes, in examples; None for the allowed_batch_sizes of the model's
        BatchFunction ops, or `DEFAULT_BATCH_SIZES` if the model has no such ops.
      unknown_dimension: Size to assume for unknown dimensions other than the batch dimension.

    Raises:
      SavedModelNotFound, DamagedSavedModel: The directory holds no readable SavedModel.
      MetagraphNotFound: The SavedModel has no TPU metagraph.
      SignatureNotFound: The metagraph lacks one of `signature_names`.
      LoweringError: The metagraph has an op that tpuserve cannot lower.
      InvalidInput: No signature runs anything on the TPU, or a signature does not accept a batch
        size.
    """
    signatures, graph = _read_lowered(directory)
    notes: dict[str, None] = {}
    requests: list[CompileRequest] = []
    for name in signature_names or sorted(signatures):
        if name not in signatures:
            raise SignatureNotFound(
                f"no signature {name!r} in metagraph {_TAGS} of {directory}; found "
                f"{', '.join(sorted(signatures)) or 'none'}. Use one of those names."
            )
        signature = signatures[name]
        sizes = _select_batch_sizes(name, signature, batch_sizes, graph)
        signature_requests = [_find_clusters(graph, name, signature, size, notes) for size in sizes]
        if not any(request.clusters or request.error for request in signature_requests):
            notes[f"signature {name!r} runs nothing on the TPU"] = None
            continue
        requests += [
            _replace_unknown_dimensions(request, unknown_dimension, notes)
            for request in signature_requests
        ]
    if not requests:
        raise InvalidInput(
            f"metagraph {_TAGS} of {directory} runs nothing on the TPU: no signature calls a "
            f"TPUPartitionedCall. Put the model on the TPU when you export it; see docs/export.md."
        )
    return CompilePlan(graph, tuple(requests), tuple(notes))


def _read_lowered(directory: Path) -> tuple[dict[str, Signature], Any]:
    """Read the TPU metagraph of a SavedModel, and replace its TPU ops by ops with CPU kernels.

    The replacement allows the XLA clusters of the graph to be translated to StableHLO.

    Returns:
      A dict from signature name to signature; and the GraphDef without TPU ops.
    """
    described = {
        description.tags: description for description in metagraph.read_metagraphs(directory)
    }
    tags = tag_sets.SERVE_TPU
    if tags not in described:
        untagged = metagraph.untagged_tpu_graphs(described.values())
        if not untagged:
            available = ", ".join(sorted(map(tag_sets.format_tags, described)))
            raise MetagraphNotFound(
                f"no metagraph tagged {_TAGS} in {directory}; found {available}. Export with "
                f"export_to_tpu=True, or run: {convert_command(directory, described)}"
            )
        tags = untagged[0]
    saved_model = saved_model_loader.parse_saved_model(str(directory))
    (meta_graph_def,) = (
        candidate
        for candidate in saved_model.meta_graphs
        if frozenset(candidate.meta_info_def.tags) == tags
    )
    graph = _remove_colocation(lower(meta_graph_def.graph_def))
    return dict(described[tags].signatures), graph


def _remove_colocation(graph: Any) -> Any:
    """Remove all colocation constraints from a GraphDef in place, and return the GraphDef.

    TensorFlow cannot import an XLA cluster by itself if a constraint names a node outside of it.
    """
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            node.attr.pop("_class", None)
    return graph


def _select_batch_sizes(
    name: str, signature: Signature, requested: Sequence[int] | None, graph: Any
) -> list[int]:
    """Return the batch sizes for which a signature is compiled.

    Args:
      name: Name of the signature, for the text of an error.
      signature: The signature.
      requested: The batch sizes that the user asks for; None for the default.
      graph: The GraphDef, whose BatchFunction ops may have allowed_batch_sizes.

    Raises:
      InvalidInput: The signature has a fixed batch size, and the user asks for another one.
    """
    shapes = [spec.shape for spec in signature.inputs.values()]
    fixed_sizes = {shape[0] for shape in shapes if shape and shape[0] is not None}
    has_open_size = any(shape is None or (shape and shape[0] is None) for shape in shapes)
    if has_open_size or not fixed_sizes:
        return list(dict.fromkeys(requested or allowed_batch_sizes(graph) or DEFAULT_BATCH_SIZES))
    size = max(fixed_sizes)
    if requested and set(requested) != {size}:
        raise InvalidInput(
            f"signature {name!r} accepts batches of {size} rows, not of "
            f"{', '.join(map(str, requested))}. Leave out the batch size, or export with an open "
            f"batch dimension."
        )
    return [size]


def _find_clusters(
    graph: Any, name: str, signature: Signature, batch_size: int, notes: dict[str, None]
) -> CompileRequest:
    """Find the XLA clusters that a signature runs at a batch size.

    If a BatchFunction op pads the batch to an allowed batch size, a sentence about the padding is
    added to `notes`, whose keys are the notes of the report.
    """
    feeds = {
        spec.name: AbstractTensor(tf.as_dtype(spec.dtype), spec.shape).with_rows(batch_size)
        for spec in signature.inputs.values()
    }
    finder = ClusterFinder(graph)
    try:
        finder.trace(feeds, [spec.name for spec in signature.outputs.values()])
    except InvalidInput as error:
        return CompileRequest(name, batch_size, (), str(error))
    notes.update({f"signature {name!r}: {padding}": None for padding in finder.paddings})
    return CompileRequest(name, batch_size, tuple(finder.clusters))


def _replace_unknown_dimensions(
    request: CompileRequest, unknown_dimension: int, notes: dict[str, None]
) -> CompileRequest:
    """Replace unknown dimensions in the argument shapes of a signature's XLA clusters.

    XLA compiles only for fully known shapes. An unknown first dimension becomes the batch size, and
    any other unknown dimension becomes `unknown_dimension`. A sentence about each replacement is
    added to `notes`, whose keys are the notes of the report.

    Returns:
      The request with known shapes. If the rank of an argument or the shape of a variable is
      unknown, the returned request has an error and no clusters.
    """
    clusters = []
    for cluster in request.clusters:
        arguments = []
        for argument in cluster.arguments:
            if _is_undetermined(argument):
                return _failed_request(request, cluster, argument)
            if argument.variable is None and argument.shape and None in argument.shape:
                assumed = [request.batch_size] + (len(argument.shape) - 1) * [unknown_dimension]
                known_shape = tuple(
                    default if size is None else size
                    for size, default in zip(argument.shape, assumed, strict=True)
                )
                notes[_describe_replacement(request, cluster, argument, known_shape)] = None
                argument = dataclasses.replace(argument, shape=known_shape)
            arguments.append(argument)
        clusters.append(dataclasses.replace(cluster, arguments=tuple(arguments)))
    return dataclasses.replace(request, clusters=tuple(clusters))


def _is_undetermined(argument: AbstractTensor) -> bool:
    """Return whether no shape can be assumed for an argument of an XLA cluster.

    This is so for an argument of unknown rank, and for a variable with an unknown dimension.
    """
    if argument.variable is not None:
        return argument.variable.shape is None or None in argument.variable.shape
    return argument.shape is None


def _failed_request(
    request: CompileRequest, cluster: XlaCluster, argument: AbstractTensor
) -> CompileRequest:
    """Return a request with an error in place of the clusters.

    The error says that the signature cannot be compiled, because the shape of the argument is
    unknown.
    """
    subject = f"variable {argument.variable.name!r}" if argument.variable else "an input"
    error = (
        f"the shape of {subject} of {cluster.function} is unknown until the model runs. Set the "
        f"shape when you export the model."
    )
    return CompileRequest(request.signature, request.batch_size, (), error)


def _describe_replacement(
    request: CompileRequest,
    cluster: XlaCluster,
    argument: AbstractTensor,
    known_shape: tuple[int, ...],
) -> str:
    """Return a sentence about an argument whose unknown dimensions were replaced.

    The sentence becomes a note of the report. `known_shape` is the shape of the argument after the
    replacement.
    """
    sizes = ", ".join("?" if size is None else str(size) for size in argument.shape or ())
    return (
        f"signature {request.signature!r}: an input of {cluster.function} is "
        f"{argument.dtype.name} [{sizes}] at batch size {request.batch_size}, and was compiled as "
        f"{list(known_shape)}"
    )
