"""Chooses the nodes of a signature that run on the TPU; the host runs the others."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from tpuserve.export.conversion.analysis import handles
from tpuserve.export.conversion.analysis.closure import find_largest_closure
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

# Types of the ops that do most of a model's work, such as matrix multiplications. To measure the
# work on the TPU, each counts as much as `_HEAVY` other ops.
_HEAVY_OPS = re.compile(
    r"\w*(MatMul|Conv|Einsum|While|If|XlaCallModule|LSTM|GRU|FFT|Cholesky|Svd|Qr)\w*"
)
_HEAVY, _LIGHT = 1000, 1


def find_tpu_nodes(
    graph: GraphIR, names: Collection[str], host_only: Collection[str], library: "Library"
) -> set[str]:
    """Choose the nodes to run on the TPU, so that the TPU does as much of the work as possible.

    All nodes on the TPU become one computation, so no result of the TPU may go to the host and
    return to the TPU.

    Args:
      names: Names of the nodes to divide. Nodes of which host and TPU both get a copy, such as
        constants, are not among them.
    """
    edges = [
        (producer, name)
        for name in names
        for producer in graph_ir.predecessors(graph.nodes[name])
        if producer in names
    ]
    tied = handles.find_ties(graph, names, graph_ir.value_types(graph, library))
    before = _reach(host_only, [(head, tail) for tail, head in [*edges, *tied]])
    after = _reach(host_only, [*edges, *tied])
    weights: dict[tuple[str, bool], int] = {}
    for name in names:
        weight = 0 if name in host_only else _weigh(graph, name)
        if name in before:
            weights[name, False] = weight
        if name in after:
            weights[name, True] = -weight
    requirements = [
        ((tail, is_behind), (head, is_behind))
        for tail, head in [*edges, *tied]
        for is_behind in (False, True)
        if (tail, is_behind) in weights and (head, is_behind) in weights
    ]
    for name in before & after:
        requirements.append(((name, True), (name, False)))
        if name in host_only:
            requirements.append(((name, False), (name, True)))
    chosen = find_largest_closure(weights, requirements)
    return {
        name
        for name in names
        if name not in host_only
        and (name not in before or (name, False) in chosen)
        and (name, True) not in chosen
    }


def _weigh(graph: GraphIR, name: str) -> int:
    return _HEAVY if _HEAVY_OPS.fullmatch(graph.nodes[name].op) else _LIGHT


def _reach(start: Collection[str], edges: list[tuple[str, str]]) -> set[str]:
    heads: dict[str, list[str]] = {}
    for tail, head in edges:
        heads.setdefault(tail, []).append(head)
    return find_reachable(start, lambda name: heads.get(name, ()))
