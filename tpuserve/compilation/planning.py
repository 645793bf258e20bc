"""Plans the compilation of a SavedModel: finds the XLA clusters to compile.

An XLA cluster is a function of the graph that XLA compiles as a whole. Its argument shapes depend
on the signature and on the batch size.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.compilation.host_run import HostRun
from tpuserve.errors import InvalidInput, MetagraphNotFound, SignatureNotFound
from tpuserve.lowering import lower
from tpuserve.samples import cases
from tpuserve.samples.cases import InputCase, InputSource
from tpuserve.saved_model import metagraph, op_imports
from tpuserve.saved_model.batch_functions import allowed_batch_sizes
from tpuserve.saved_model.initialisation import insert_asset_paths
from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.summary import convert_command
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, Shape
from tpuserve.stablehlo.cluster_finder import ClusterFinder, XlaCluster
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import saved_model_loader


@dataclass(frozen=True)
class CompileRequest:
    """One signature at one batch size, with the XLA clusters that it runs on the TPU.

    Attributes:
      error: Why the clusters or their argument shapes are unknown; None if they are known.
    """

    signature: str
    batch_size: int
    clusters: tuple[XlaCluster, ...]
    error: str | None = None


_SOURCES: Mapping[InputSource, str] = {
    "file": "the inputs of --inputs",
    "warm-up record": "a warm-up record",
    "generated": "generated inputs",
}


def _is_open(argument: AbstractTensor) -> bool:
    """Return whether a size of an argument that is no variable is known only in a run."""
    is_handle = argument.dtype == tf.resource
    return not is_handle and (argument.shape is None or None in argument.shape)


def has_open_sizes(request: CompileRequest) -> bool:
    """Return whether the shape of an argument of a cluster is known only in a run."""
    return any(_is_open(argument) for cluster in request.clusters for argument in cluster.arguments)


def take_sizes(
    request: CompileRequest,
    signature: Signature,
    case: InputCase,
    host_run: HostRun,
    notes: dict[str, None],
) -> CompileRequest:
    """Replace the sizes that are known only in a run by those of a run on the inputs.

    A sentence about each replacement is added to `notes`, whose keys are the notes of the report.

    Returns:
      The request with known shapes. If a run does not tell them, the returned request has an error
      and no clusters.
    """
    refusal = cases.refuse_generated(signature, [case])
    if case.source == "generated" and any(spec.shape is None for spec in signature.inputs.values()):
        refusal = "an input has an unknown rank. Give inputs"
    if refusal is not None:
        return _failed_request(request, refusal)
    try:
        inputs = case.make()
    except InvalidInput as error:
        return _failed_request(request, f"{str(error).rstrip('.')}. Or give inputs")
    recorded, failure = host_run.run(request.signature, inputs)
    calls = {function: iter(shapes) for function, shapes in recorded.items()}
    clusters = []
    for cluster in request.clusters:
        shapes = next(calls.get(cluster.function, iter(())), None)
        if shapes is None and any(map(_is_open, cluster.arguments)):
            reason = failure or f"a run on {case.source} inputs does not call {cluster.function}"
            return _failed_request(request, f"{str(reason).rstrip('.')}. Give inputs")
        remaining = iter(shapes or ())
        arguments = []
        for argument in cluster.arguments:
            if argument.dtype != tf.resource and shapes is not None:
                known = dataclasses.replace(argument, shape=next(remaining))
                if _is_open(argument):
                    notes[_describe_replacement(request, case, cluster, argument, known)] = None
                argument = known
            arguments.append(argument)
        clusters.append(dataclasses.replace(cluster, arguments=tuple(arguments)))
    return dataclasses.replace(request, clusters=tuple(clusters))


def _failed_request(request: CompileRequest, reason: str) -> CompileRequest:
    error = f"sizes of what the host passes to the TPU are known only in a run, and {reason}"
    return CompileRequest(request.signature, request.batch_size, (), f"{error}, with --inputs.")


def _describe_replacement(
    request: CompileRequest,
    case: InputCase,
    cluster: XlaCluster,
    argument: AbstractTensor,
    known: AbstractTensor,
) -> str:
    """Return a sentence for the report about an argument whose sizes are those of a run."""
    return (
        f"signature {request.signature!r}: an input of {cluster.function} is "
        f"{argument.dtype.name} {_format_shape(argument.shape)} at batch size "
        f"{request.batch_size}, and was compiled as {_format_shape(known.shape)}, as in a run on "
        f"{_SOURCES[case.source]}"
    )


def _format_shape(shape: Shape) -> str:
    if shape is None:
        return "of unknown rank"
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


DEFAULT_BATCH_SIZES = (1, 8, 64)

_TAGS = tag_sets.format_tags(tag_sets.SERVE_TPU)


@dataclass(frozen=True)
class CompilePlan:
    """The compilations that a SavedModel needs.

    Attributes:
      graph: The GraphDef of the TPU metagraph. Its TPU ops are replaced by ops that have CPU
        kernels.
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
    inputs: Path | None = None,
) -> CompilePlan:
    """Plan the compilations of a SavedModel's TPU metagraph.

    The shapes are those of the inputs on which `tpuserve verify` runs: those of the file, of the
    warm-up records, or generated ones.

    Args:
      batch_sizes: Batch sizes, in examples; None for the allowed_batch_sizes of the model's
        BatchFunction ops, or `DEFAULT_BATCH_SIZES` if the model has no such ops.

    Raises:
      InvalidInput: No signature runs anything on the TPU, a signature does not accept a batch size,
        or the inputs do not fit the signatures.
    """
    tags, signatures, meta_graph = _read_lowered(directory)
    graph = meta_graph.graph_def
    notes: dict[str, None] = {}
    requests: list[CompileRequest] = []
    host_run: HostRun | None = None
    for name in signature_names or sorted(signatures):
        if name not in signatures:
            raise SignatureNotFound(
                f"no signature {name!r} in metagraph {_TAGS} of {directory}; found "
                f"{', '.join(sorted(signatures)) or 'none'}. Use one of those names."
            )
        signature = signatures[name]
        input_cases = cases.collect_cases(
            directory,
            meta_graph,
            {name: signature},
            available=signatures,
            inputs=inputs,
            batch_sizes=_select_batch_sizes(name, signature, batch_sizes, graph),
            allowed_batch_sizes=(),
            open_dimension=unknown_dimension,
        )
        notes.update(dict.fromkeys(input_cases.notes))
        found = [
            (case, _find_clusters(graph, name, signature, case, notes))
            for case in input_cases.by_signature[name]
        ]
        if not any(request.clusters or request.error for _, request in found):
            notes[f"signature {name!r} runs nothing on the TPU"] = None
            continue
        for case, request in found:
            if has_open_sizes(request):
                host_run = host_run or HostRun(directory, tags, meta_graph)
                request = take_sizes(request, signature, case, host_run, notes)
            requests.append(_refuse_open_variables(request))
    if not requests:
        raise InvalidInput(
            f"metagraph {_TAGS} of {directory} runs nothing on the TPU: no signature calls a "
            f"TPUPartitionedCall. Put the model on the TPU when you export it; see docs/export.md."
        )
    return CompilePlan(graph, tuple(requests), tuple(notes))


def _read_lowered(directory: Path) -> tuple[TagSet, dict[str, Signature], Any]:
    """Read the TPU metagraph of a SavedModel, and replace its TPU ops by ops with CPU kernels."""
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
    op_imports.import_packages_of([meta_graph_def], directory)
    meta_graph_def.graph_def.CopyFrom(_remove_colocation(lower(meta_graph_def.graph_def)))
    insert_asset_paths(meta_graph_def, directory)
    return tags, dict(described[tags].signatures), meta_graph_def


def _remove_colocation(graph: Any) -> Any:
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            node.attr.pop("_class", None)
    return graph


def _select_batch_sizes(
    name: str, signature: Signature, requested: Sequence[int] | None, graph: Any
) -> list[int]:
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
    graph: Any, name: str, signature: Signature, case: InputCase, notes: dict[str, None]
) -> CompileRequest:
    """Find the XLA clusters that a signature runs on some inputs."""
    batch_size = case.batch_size or 1
    is_generated = case.source == "generated"
    # Nothing says what rank an input of unknown rank has, unless there are real inputs.
    feeds = {
        spec.name: AbstractTensor(
            tf.as_dtype(spec.dtype),
            None if spec.shape is None and is_generated else case.shapes[alias],
        )
        for alias, spec in signature.inputs.items()
    }
    finder = ClusterFinder(graph)
    try:
        finder.trace(feeds, [spec.name for spec in signature.outputs.values()])
    except InvalidInput as error:
        return CompileRequest(name, batch_size, (), str(error))
    notes.update({f"signature {name!r}: {padding}": None for padding in finder.paddings})
    if is_generated and finder.clusters:
        notes.update(
            {
                f"signature {name!r}: input {alias!r} is {spec}, and was compiled as "
                f"{list(case.shapes[alias])}": None
                for alias, spec in signature.inputs.items()
                if spec.shape and None in spec.shape[1:]
            }
        )
    return CompileRequest(name, batch_size, tuple(finder.clusters))


def _refuse_open_variables(request: CompileRequest) -> CompileRequest:
    """Return the request, with an error if the shape of a variable is unknown."""
    for cluster in request.clusters:
        for argument in cluster.arguments:
            variable = argument.variable
            if variable is not None and (variable.shape is None or None in variable.shape):
                error = (
                    f"the shape of variable {variable.name!r} of {cluster.function} is unknown "
                    f"until the model runs. Set the shape when you export the model."
                )
                return CompileRequest(request.signature, request.batch_size, (), error)
    return request
