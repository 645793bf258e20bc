"""Collects all hazards of a {serve, tpu} metagraph: what may fail or be slow on a real TPU."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tpuserve.comparison import Comparison
from tpuserve.graph.references import data_inputs, node_name
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.verification import node_hazards
from tpuserve.verification.node_hazards import PlacedNode
from tpuserve.verification.verification_report import Hazard, VerifiedSignature
from tpuserve.verification.xla_refusals import XlaRefusals

# Op → positions of the inputs that must be constants when XLA compiles, because they determine
# shapes in the compiled program; -1 is the last input.
# Source: the calls of CompileTimeConstantInput in tensorflow/compiler/tf2xla/kernels.
_SHAPE_INPUTS: Mapping[str, Sequence[int]] = {
    "Reshape": (1,),
    "Fill": (0,),
    "Tile": (1,),
    "BroadcastTo": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "MirrorPad": (1,),
    "Transpose": (1,),
    "ExpandDims": (1,),
    "ConcatV2": (-1,),
    "Range": (0, 1, 2),
    "LinSpace": (0, 1, 2),
    "OneHot": (1,),
    "TopKV2": (1,),
    "ArgMax": (1,),
    "ArgMin": (1,),
    "Sum": (1,),
    "Mean": (1,),
    "Max": (1,),
    "Min": (1,),
    "Prod": (1,),
    "All": (1,),
    "Any": (1,),
    "Split": (0,),
    "SplitV": (1, 2),
    "GatherV2": (2,),
    "Cumsum": (1,),
    "ReverseV2": (1,),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "RandomUniform": (0,),
    "RandomStandardNormal": (0,),
    "UnsortedSegmentSum": (2,),
    "SparseToDense": (1,),
}
# Ops whose outputs depend only on the shape of their input, and not on its values.
_SHAPE_OPS = ("Shape", "ShapeN", "Rank", "Size", "VariableShape", "ZerosLike", "OnesLike")


def find_constant_inputs(
    meta_graph_def: Any, nodes: Sequence[PlacedNode], refusals: XlaRefusals
) -> Iterator[Hazard]:
    """Find ops of TPU computations whose shape arguments are computed values and not constants.

    Args:
      refusals: The ops that XLA refused while the signatures ran. Their hazards are errors; the
        hazards of other ops are warnings.
    """
    nodes_on_tpu = {placed.node.name: placed for placed in nodes if placed.on_tpu}
    for name, refused in refusals.not_constant.items():
        yield Hazard(
            "constant_input",
            "error",
            f"input {refused.input_number} of {refused.op} must be a constant while XLA compiles, "
            f"but depends on values. Compute it from static shapes.",
            op=refused.op,
            node=name,
            function=nodes_on_tpu[name].function if name in nodes_on_tpu else "",
        )
    computations = {placed.computation for placed in nodes if placed.on_tpu}
    for function in meta_graph_def.graph_def.library.function:
        if function.signature.name in computations:
            yield from _find_in_computation(function, nodes_on_tpu, refusals)


def _find_in_computation(
    function: Any, nodes_on_tpu: Mapping[str, PlacedNode], refusals: XlaRefusals
) -> Iterator[Hazard]:
    """Find ops of a TPU computation whose shape argument depends on the computation's inputs."""
    nodes = {node.name: node for node in function.node_def}
    integer_inputs = {
        argument.name
        for argument in function.signature.input_arg
        if argument.type in dtypes.WHOLE_NUMBERS
    }
    for node in nodes.values():
        if node.name in refusals.not_constant or node.name not in nodes_on_tpu:
            continue
        tensors = data_inputs(node)
        shape_tensors = [
            tensors[position]
            for position in _SHAPE_INPUTS.get(node.op, ())
            if -len(tensors) <= position < len(tensors)
        ]
        sources = sorted(_trace_to_sources(shape_tensors, nodes) & integer_inputs)
        if sources:
            yield Hazard(
                "constant_input",
                "warning",
                f"{node.op} takes a shape from the computation's input {', '.join(sources)}. XLA "
                f"needs that value while it compiles, so a TPU recompiles for every new value. "
                f"Compute the shape from static shapes.",
                op=node.op,
                node=node.name,
                function=function.signature.name,
            )


def _trace_to_sources(tensors: Sequence[str], nodes: Mapping[str, Any]) -> set[str]:
    """Return the function arguments on whose values the tensors depend."""
    visited: set[str] = set()
    sources: set[str] = set()
    pending = [node_name(tensor) for tensor in tensors]
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        if name not in nodes:
            sources.add(name)
        elif nodes[name].op not in _SHAPE_OPS:
            pending += [node_name(tensor) for tensor in data_inputs(nodes[name])]
    return sources


Sizes = tuple[int, ...]
# The allowed_batch_sizes that a message proposes if the SavedModel has none. They are the default
# batch sizes of `tpuserve compile`.
_USUAL_SIZES = (1, 8, 64)


def find_recompilations(
    placed: Mapping[str, Sequence[PlacedNode]],
    signatures: Mapping[str, Signature],
    allowed_batch_sizes: Sequence[int],
    warm_up: Sequence[WarmUpRecord],
) -> Iterator[Hazard]:
    """Find the signatures that run on the TPU and have inputs with unknown dimensions.

    A TPU compiles the model again for each new size of these dimensions.

    Args:
      allowed_batch_sizes: The allowed_batch_sizes of the BatchFunction ops of the SavedModel; empty
        if there are none.
      warm_up: The records of the warm-up file; empty without the file.
    """
    by_warm_sizes: dict[Sizes, list[str]] = defaultdict(list)
    for name, signature in signatures.items():
        if not any(node.on_tpu for node in placed.get(name, ())):
            continue
        yield from _find_open_dimensions(name, signature)
        if any(spec.shape and spec.shape[0] is None for spec in signature.inputs.values()):
            by_warm_sizes[_warm_up_sizes(warm_up, name)].append(name)
    for warm_sizes, names in by_warm_sizes.items():
        yield _batch_size_hazard(names, tuple(allowed_batch_sizes), warm_sizes)


def _find_open_dimensions(name: str, signature: Signature) -> Iterator[Hazard]:
    """Report inputs with an unknown rank, or with an unknown dimension other than the first."""
    shapes = {alias: spec.shape for alias, spec in signature.inputs.items()}
    open_parts = [
        f"dimension {position} of {alias!r}"
        for alias, shape in shapes.items()
        for position, size in enumerate(shape or ())
        if size is None and position > 0
    ]
    open_parts += [f"the rank of {alias!r}" for alias, shape in shapes.items() if shape is None]
    if open_parts:
        yield Hazard(
            "recompilation",
            "warning",
            f"signature {name!r} leaves open {', '.join(open_parts)}: a TPU recompiles for every "
            f"new size, and that request waits. Pad to a fixed size.",
        )


def _batch_size_hazard(names: Sequence[str], allowed: Sizes, warm_sizes: Sizes) -> Hazard:
    """Return a hazard about the compilations of signatures for different batch sizes."""
    several = len(names) > 1
    subject = f"signature{'s' if several else ''} {', '.join(map(repr, names))}"
    if allowed:
        cold = [size for size in allowed if size not in warm_sizes]
        text = (
            f"{subject} {'are' if several else 'is'} compiled for batch sizes "
            f"{_format_sizes(allowed)}: one compilation each"
        )
        if not cold:
            return Hazard("recompilation", "note", f"{text}, all of them during warm-up.")
        if not warm_sizes:
            return Hazard("recompilation", "note", f"{text}. Export with a warm-up file.")
        return Hazard(
            "recompilation",
            "note",
            f"{text}. The warm-up file lacks {_format_sizes(cold)}: add these sizes.",
        )
    accepts = f"{subject} accept{'' if several else 's'} any batch size"
    if not warm_sizes:
        return Hazard(
            "recompilation",
            "warning",
            f"{accepts}: a TPU recompiles for every new size, and that request waits. Batch to "
            f"allowed_batch_sizes, and export with a warm-up file: warm_up=True, "
            f"{_batch_config(_USUAL_SIZES)}.",
        )
    return Hazard(
        "recompilation",
        "warning",
        f"{accepts}, and the warm-up file has {_format_sizes(warm_sizes)}: a TPU recompiles for "
        f"every other size, and that request waits. Batch to allowed_batch_sizes: "
        f"{_batch_config(warm_sizes)}.",
    )


def _batch_config(sizes: Sizes) -> str:
    """Return Python code for the argument batch_config of an export, to show in a message."""
    return (
        f"batch_config=BatchConfig(num_batch_threads=2, max_batch_size={sizes[-1]}, "
        f"batch_timeout_micros=2000, allowed_batch_sizes={list(sizes)})"
    )


def _warm_up_sizes(warm_up: Sequence[WarmUpRecord], name: str) -> Sizes:
    """Return the batch sizes of a signature's warm-up records in increasing order."""
    sizes = {
        spec.shape[0]
        for record in warm_up
        if record.signature_name == name
        for spec in record.inputs.values()
        if spec.shape
    }
    return tuple(sorted(size for size in sizes if size is not None))


def _format_sizes(sizes: Iterable[int]) -> str:
    return ", ".join(map(str, sizes))


_SEVERITY_ORDER = {"error": 0, "warning": 1, "note": 2}


def find_hazards(
    meta_graph_def: Any,
    placed: Mapping[str, Sequence[PlacedNode]],
    signatures: Mapping[str, Signature],
    *,
    allowed_batch_sizes: Sequence[int],
    warm_up: Sequence[WarmUpRecord],
    refusals: XlaRefusals,
    verified: Sequence[VerifiedSignature],
    line_of: Callable[[str], str | None],
) -> tuple[Hazard, ...]:
    """Find the hazards of a {serve, tpu} metagraph: errors first, then warnings, then notes.

    Args:
      allowed_batch_sizes: The allowed_batch_sizes of the BatchFunction ops of the SavedModel; empty
        if there are none.
      warm_up: The records of the warm-up file; empty without the file.
      line_of: Takes "node@function", and returns the "file:line" of the user code that has created
        the node; None if it is unknown.
    """
    nodes = _merge_unique(placed.values())
    names_that_ran = [
        signature.name
        for signature in verified
        if signature.runs and all(run.candidate is not None for run in signature.runs)
    ]
    compiled = _merge_unique(placed[name] for name in placed if name in names_that_ran)
    hazards = [
        *node_hazards.find_uncompilable_ops(nodes, compiled, refusals),
        *find_constant_inputs(meta_graph_def, nodes, refusals),
        *node_hazards.find_other_platforms(nodes),
        *node_hazards.find_large_constants(nodes),
        *node_hazards.find_strings(nodes),
        *node_hazards.find_random_ops(nodes),
        *node_hazards.find_dynamic_shapes(nodes),
        *node_hazards.find_64_bit_types(nodes),
        *find_recompilations(placed, signatures, allowed_batch_sizes, warm_up),
        *_find_missing_computations(placed),
        *_find_non_finite_outputs(verified),
    ]
    with_lines = [_add_line(hazard, line_of) for hazard in hazards]
    return tuple(sorted(with_lines, key=lambda hazard: _SEVERITY_ORDER[hazard.severity]))


def _merge_unique(node_lists: Iterable[Iterable[PlacedNode]]) -> list[PlacedNode]:
    unique: dict[tuple[str, str, str, bool], PlacedNode] = {}
    for nodes in node_lists:
        for placed in nodes:
            key = placed.node.name, placed.function, placed.computation, placed.on_tpu
            unique.setdefault(key, placed)
    return list(unique.values())


def _add_line(hazard: Hazard, line_of: Callable[[str], str | None]) -> Hazard:
    line = line_of(f"{hazard.node}@{hazard.function}") if hazard.node else None
    return hazard if line is None else dataclasses.replace(hazard, line=line)


def _find_missing_computations(placed: Mapping[str, Sequence[PlacedNode]]) -> Iterable[Hazard]:
    """Report the signatures of the {serve, tpu} metagraph that run nothing on the TPU."""
    for name, nodes in placed.items():
        if not any(node.on_tpu for node in nodes):
            yield Hazard(
                "no_computation",
                "warning",
                f"signature {name!r} of {{serve, tpu}} runs nothing on the TPU: the host "
                f"computes everything, and `tpuserve compile` finds nothing to compile. Put the "
                f"model into tpu.rewrite and TPUPartitionedCall, or export as V1.",
            )


def _find_non_finite_outputs(verified: Sequence[VerifiedSignature]) -> Iterable[Hazard]:
    """Report the outputs whose values are all NaN or infinite, which cannot be compared."""
    for signature in verified:
        by_name: dict[str, list[Comparison]] = defaultdict(list)
        for run in signature.runs:
            for output in run.outputs:
                by_name[output.name].append(output)
        for name, outputs in by_name.items():
            nan = sum(output.nan for output in outputs)
            infinite = sum(output.infinite for output in outputs)
            count = sum(math.prod(output.shape) for output in outputs)
            if not count or nan + infinite < count:
                continue
            kind = "NaN or infinite" if nan and infinite else "NaN" if nan else "infinite"
            yield Hazard(
                "not_finite",
                "warning",
                f"{count} of {count} values of output {name!r} of signature {signature.name!r} are "
                f"{kind} in both metagraphs, so no values were compared. Use --inputs to give "
                f"inputs for which the model computes finite values.",
            )
