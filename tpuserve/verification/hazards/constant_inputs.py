"""Inputs of a TPU computation that XLA has to know while it compiles."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpuserve.saved_model import dtypes
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.report import Hazard
from tpuserve.verification.xla_refusals import XlaRefusals

# Op → its inputs that decide the shape of what is compiled; -1 is the last one.
# Source: the MarkCompileTimeConstantInput registrations of tensorflow/compiler/tf2xla/kernels.
_DECIDING: Mapping[str, Sequence[int]] = {
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

# What they give is known from their input's shape, whatever its values are.
_OF_SHAPE = ("Shape", "ShapeN", "Rank", "Size", "VariableShape", "ZerosLike", "OnesLike")


def find_constant_inputs(
    meta_graph_def: Any, nodes: Sequence[PlacedNode], refused: XlaRefusals
) -> Iterator[Hazard]:
    """The inputs of computations that decide a shape, and what XLA itself said of such.

    Args:
      meta_graph_def: TensorFlow's MetaGraphDef.
      nodes: what the signatures run.
      refused: what XLA said.
    """
    placed = {each.node.name: each for each in nodes if each.on_tpu}
    for name, each in refused.not_constant.items():
        yield Hazard(
            "constant_input",
            "error",
            f"input {each.input_number} of {each.op} has to be a constant while XLA compiles, and "
            f"depends on values. Compute it from static shapes.",
            op=each.op,
            node=name,
            function=placed[name].function if name in placed else "",
        )
    computations = {each.computation for each in nodes if each.on_tpu}
    for function in meta_graph_def.graph_def.library.function:
        if function.signature.name in computations:
            yield from _of_computation(function, placed, refused)


def _of_computation(
    function: Any, placed: Mapping[str, PlacedNode], refused: XlaRefusals
) -> Iterator[Hazard]:
    nodes = {each.name: each for each in function.node_def}
    arguments = {
        each.name for each in function.signature.input_arg if each.type in dtypes.WHOLE_NUMBERS
    }
    for node in nodes.values():
        if node.name in refused.not_constant or node.name not in placed:
            continue
        inputs = [each for each in node.input if not each.startswith("^")]
        starts = [
            inputs[position]
            for position in _DECIDING.get(node.op, ())
            if -len(inputs) <= position < len(inputs)
        ]
        found = sorted(_sources(starts, nodes) & arguments)
        if found:
            yield Hazard(
                "constant_input",
                "warning",
                f"{node.op} takes a shape from the computation's input {', '.join(found)}, which "
                f"XLA has to know while it compiles: a TPU compiles once for each value that it "
                f"meets. Compute it from static shapes.",
                op=node.op,
                node=node.name,
                function=function.signature.name,
            )


def _sources(references: Sequence[str], nodes: Mapping[str, Any]) -> set[str]:
    """What references lead back to outside of the nodes."""
    seen: set[str] = set()
    found: set[str] = set()
    pending = [each.partition(":")[0] for each in references]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in nodes:
            found.add(name)
        elif nodes[name].op not in _OF_SHAPE:
            pending += [
                each.partition(":")[0] for each in nodes[name].input if not each.startswith("^")
            ]
    return found
