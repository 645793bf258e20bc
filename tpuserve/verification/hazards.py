"""What of a {serve, tpu} metagraph would fail or surprise on a TPU."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tpuserve.signature import Signature
from tpuserve.verification import constant_inputs, node_hazards
from tpuserve.verification.placement import Placed
from tpuserve.verification.refusals import Refusals
from tpuserve.verification.report import Hazard

_GRAVEST_FIRST = {"error": 0, "warning": 1, "note": 2}


def find(
    meta_graph_def: Any,
    placed: Mapping[str, Sequence[Placed]],
    signatures: Mapping[str, Signature],
    *,
    allowed_batch_sizes: Sequence[int],
    refused: Refusals,
    ran: Collection[str],
    line_of: Callable[[str], str | None],
) -> tuple[Hazard, ...]:
    """The hazards of a metagraph, the gravest first.

    Args:
      meta_graph_def: of the candidate, as TensorFlow's proto.
      placed: signature name → what it runs.
      signatures: those verified.
      allowed_batch_sizes: of the metagraph's batch functions; empty without them.
      refused: what XLA said as the signatures ran.
      ran: the signatures that ran without a failure.
      line_of: "node@function" → the line of user code that made it, where it is known.
    """
    nodes = _once(placed.values())
    compiled = _once(each for name, each in placed.items() if name in ran)
    found = [
        *node_hazards.uncompilable(nodes, compiled, refused),
        *constant_inputs.find(meta_graph_def, nodes, refused),
        *node_hazards.constants(nodes),
        *node_hazards.strings(nodes),
        *node_hazards.random(nodes),
        *node_hazards.dynamic_shapes(nodes),
        *node_hazards.wide_types(nodes),
        *_recompilations(placed, signatures, allowed_batch_sizes),
        *_no_computation(placed),
    ]
    with_lines = [_with_line(each, line_of) for each in found]
    return tuple(sorted(with_lines, key=lambda each: _GRAVEST_FIRST[each.severity]))


def _once(placed: Iterable[Iterable[Placed]]) -> list[Placed]:
    found: dict[tuple[str, str, str, bool], Placed] = {}
    for each in (each for of_one in placed for each in of_one):
        found.setdefault((each.node.name, each.function, each.computation, each.on_tpu), each)
    return list(found.values())


def _with_line(hazard: Hazard, line_of: Callable[[str], str | None]) -> Hazard:
    line = line_of(f"{hazard.node}@{hazard.function}") if hazard.node else None
    return hazard if line is None else dataclasses.replace(hazard, line=line)


def _recompilations(
    placed: Mapping[str, Sequence[Placed]],
    signatures: Mapping[str, Signature],
    allowed_batch_sizes: Sequence[int],
) -> Iterable[Hazard]:
    for name, signature in signatures.items():
        if not any(each.on_tpu for each in placed.get(name, ())):
            continue
        shapes = {alias: each.shape for alias, each in signature.inputs.items()}
        unknown_rank = [alias for alias, shape in shapes.items() if shape is None]
        inner = [
            f"dimension {position} of {alias!r}"
            for alias, shape in shapes.items()
            for position, size in enumerate(shape or ())
            if size is None and position > 0
        ]
        if inner or unknown_rank:
            where = ", ".join([*inner, *(f"the rank of {each!r}" for each in unknown_rank)])
            yield Hazard(
                "recompilation",
                "warning",
                f"signature {name!r} leaves open {where}: a TPU compiles once for each size that "
                f"it meets, and a request waits for it. Pad to a fixed size.",
            )
        if not any(shape and shape[0] is None for shape in shapes.values()):
            continue
        if allowed_batch_sizes:
            sizes = ", ".join(str(each) for each in allowed_batch_sizes)
            yield Hazard(
                "recompilation",
                "note",
                f"signature {name!r} is compiled for batch sizes {sizes}: one compilation each.",
            )
        else:
            yield Hazard(
                "recompilation",
                "warning",
                f"signature {name!r} takes any number of rows: a TPU compiles once for each "
                f"number that it meets, and a request waits for it. Batch to allowed_batch_sizes, "
                f"and export with a warm-up file.",
            )


def _no_computation(placed: Mapping[str, Sequence[Placed]]) -> Iterable[Hazard]:
    for name, nodes in placed.items():
        if not any(each.on_tpu for each in nodes):
            yield Hazard(
                "no_computation",
                "warning",
                f"signature {name!r} has nothing that runs on the TPU: the host computes all of "
                f"it. Put the model into tpu.rewrite and TPUPartitionedCall, or export as V1.",
            )
