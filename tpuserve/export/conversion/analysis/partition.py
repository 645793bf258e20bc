"""Divides the nodes of a signature among the TPU, the host before it and the host after it."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from tpuserve.export.conversion.analysis.closure import find_largest_closure
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

# Ops that do most of a model's work. Each weighs as much as `_HEAVY` other ops.
_HEAVY_OPS = re.compile(
    r"\w*(MatMul|Conv|Einsum|While|If|XlaCallModule|LSTM|GRU|FFT|Cholesky|Svd|Qr)\w*"
)
_HEAVY, _LIGHT = 1000, 1


def find_tpu_nodes(
    graph: GraphIR, names: Collection[str], host_only: Collection[str], library: "Library"
) -> set[str]:
    """Choose the nodes that run on the TPU, as many as possible.

    The TPU's nodes become one computation, so none of its results may return to it through the
    host. A node that only the host can run is therefore either in front of the TPU, with all nodes
    that it depends on, or behind the TPU, with all nodes that depend on it. The choice with the
    most work on the TPU is a closure of the largest weight (see `find_largest_closure`): its items
    are, for each node v, "v is not in front" and "v is behind".

    Args:
      graph: A flat graph.
      names: The nodes that the signature needs, without those that each side has a copy of.
      host_only: The nodes among `names` that only the host can run.
      library: Function name → function.
    """
    edges = [
        (producer, name)
        for name in names
        for producer in graph_ir.predecessors(graph.nodes[name])
        if producer in names
    ]
    # A value of dtype variant, such as a TensorList, cannot be copied between host and TPU. Keep
    # the node that uses it on the side of the node that produces it.
    types = graph_ir.value_types(graph, library)
    tied = [
        (name, value.producer)
        for name in names
        for value in graph.nodes[name].inputs
        if value.producer in names and types[value] == dtypes.VARIANT
    ]
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
    """Return the nodes of `start` and all nodes that a path of edges (tail, head) reaches."""
    heads: dict[str, list[str]] = {}
    for tail, head in edges:
        heads.setdefault(tail, []).append(head)
    return find_reachable(start, lambda name: heads.get(name, ()))
