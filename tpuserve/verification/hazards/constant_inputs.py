"""Finds ops on the TPU whose shape arguments are not constants, although XLA needs constants."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuserve.graph.references import data_inputs, node_name
from tpuserve.saved_model import dtypes
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.verification_report import Hazard
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
