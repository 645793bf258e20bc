"""Collects all hazards of a {serve, tpu} metagraph: what may fail or be slow on a real TPU."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.verification.hazards import constant_inputs, node_hazards, recompilations
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.verification_report import Comparison, Hazard, VerifiedSignature
from tpuserve.verification.xla_refusals import XlaRefusals

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
        *constant_inputs.find_constant_inputs(meta_graph_def, nodes, refusals),
        *node_hazards.find_other_platforms(nodes),
        *node_hazards.find_large_constants(nodes),
        *node_hazards.find_strings(nodes),
        *node_hazards.find_random_ops(nodes),
        *node_hazards.find_dynamic_shapes(nodes),
        *node_hazards.find_64_bit_types(nodes),
        *recompilations.find_recompilations(placed, signatures, allowed_batch_sizes, warm_up),
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
