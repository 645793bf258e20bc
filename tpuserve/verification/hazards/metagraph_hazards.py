"""What of a {serve, tpu} metagraph would fail or surprise on a TPU."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tpuserve.saved_model.signature import Signature
from tpuserve.saved_model.warm_up_file import WarmUpRecord
from tpuserve.verification.hazards import constant_inputs, node_hazards, recompilations
from tpuserve.verification.hazards.node_placement import PlacedNode
from tpuserve.verification.report import Comparison, Hazard, VerifiedSignature
from tpuserve.verification.xla_refusals import XlaRefusals

_GRAVEST_FIRST = {"error": 0, "warning": 1, "note": 2}


def find_hazards(
    meta_graph_def: Any,
    placed: Mapping[str, Sequence[PlacedNode]],
    signatures: Mapping[str, Signature],
    *,
    allowed_batch_sizes: Sequence[int],
    warm_up: Sequence[WarmUpRecord],
    refused: XlaRefusals,
    verified: Sequence[VerifiedSignature],
    line_of: Callable[[str], str | None],
) -> tuple[Hazard, ...]:
    """The hazards of a metagraph, the gravest first.

    Args:
      meta_graph_def: of the candidate, as TensorFlow's proto.
      placed: signature name → what it runs.
      signatures: those of the metagraph, out of the ones asked for.
      allowed_batch_sizes: of the metagraph's batch functions; empty without them.
      warm_up: the requests of the warm-up file; none without it.
      refused: what XLA said as the signatures ran.
      verified: what the runs gave.
      line_of: "node@function" → the line of user code that made it, where it is known.
    """
    nodes = _once(placed.values())
    ran = [
        each.name
        for each in verified
        if each.runs and all(run.candidate is not None for run in each.runs)
    ]
    compiled = _once(each for name, each in placed.items() if name in ran)
    found = [
        *node_hazards.find_uncompilable_ops(nodes, compiled, refused),
        *constant_inputs.find_constant_inputs(meta_graph_def, nodes, refused),
        *node_hazards.find_large_constants(nodes),
        *node_hazards.find_strings(nodes),
        *node_hazards.find_random_ops(nodes),
        *node_hazards.find_dynamic_shapes(nodes),
        *node_hazards.find_64_bit_types(nodes),
        *recompilations.find_recompilations(placed, signatures, allowed_batch_sizes, warm_up),
        *_no_computation(placed),
        *_not_finite(verified),
    ]
    with_lines = [_with_line(each, line_of) for each in found]
    return tuple(sorted(with_lines, key=lambda each: _GRAVEST_FIRST[each.severity]))


def _once(placed: Iterable[Iterable[PlacedNode]]) -> list[PlacedNode]:
    found: dict[tuple[str, str, str, bool], PlacedNode] = {}
    for each in (each for of_one in placed for each in of_one):
        found.setdefault((each.node.name, each.function, each.computation, each.on_tpu), each)
    return list(found.values())


def _with_line(hazard: Hazard, line_of: Callable[[str], str | None]) -> Hazard:
    line = line_of(f"{hazard.node}@{hazard.function}") if hazard.node else None
    return hazard if line is None else dataclasses.replace(hazard, line=line)


def _no_computation(placed: Mapping[str, Sequence[PlacedNode]]) -> Iterable[Hazard]:
    for name, nodes in placed.items():
        if not any(each.on_tpu for each in nodes):
            yield Hazard(
                "no_computation",
                "warning",
                f"signature {name!r} of {{serve, tpu}} has nothing that runs on the TPU: the host "
                f"computes all of it, and `tpuserve compile` finds nothing to compile. Put the "
                f"model into tpu.rewrite and TPUPartitionedCall, or export as V1.",
            )


def _not_finite(verified: Sequence[VerifiedSignature]) -> Iterable[Hazard]:
    """Outputs whose comparison says nothing: neither metagraph gave a number."""
    for signature in verified:
        by_name: dict[str, list[Comparison]] = {}
        for each in (each for run in signature.runs for each in run.outputs):
            by_name.setdefault(each.name, []).append(each)
        for name, outputs in by_name.items():
            nan, infinite = (
                sum(each.nan for each in outputs),
                sum(each.infinite for each in outputs),
            )
            count = sum(math.prod(each.shape) for each in outputs)
            if not count or nan + infinite < count:
                continue
            sort = "NaN or infinite" if nan and infinite else "NaN" if nan else "infinite"
            yield Hazard(
                "not_finite",
                "warning",
                f"{count} of {count} values of output {name!r} of signature {signature.name!r} are "
                f"{sort} in both metagraphs, so that nothing was compared. Give inputs that the "
                f"model has answers for, by --inputs.",
            )
