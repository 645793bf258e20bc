"""Fills in the sizes of what the host passes to the TPU that are known only in a run."""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from tpuserve.compilation.compile_request import CompileRequest
from tpuserve.compilation.host_run import HostRun
from tpuserve.errors import InvalidInput
from tpuserve.samples import cases
from tpuserve.samples.cases import InputCase, InputSource
from tpuserve.saved_model.signature import Signature
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, Shape
from tpuserve.stablehlo.cluster_finder import XlaCluster

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
