"""Finds the TPU computations of a graph, and replaces each by nodes that a CPU can run.

A computation consists of the nodes between its TPUReplicatedInputs and TPUReplicatedOutputs. When
tpu.replicate builds these nodes, it gives them an attribute with the name of the computation.
"""

import dataclasses
from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    REPLICATE_METADATA,
    REPLICATED_INPUT,
    REPLICATED_OUTPUT,
)
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.core_placement import first_cores
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes.replica_unrolling import unroll_replicas
from tpuserve.lowering.passes.unrolled_graph import ReplicaContext, UnrolledGraph

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def lower_computations(
    graph: GraphIR, library: "dict[str, FunctionDef]", *, compiled: bool
) -> GraphIR:
    """Replace each TPU computation of a graph by nodes that do the work of all its replicas.

    Args:
      library: function name → FunctionDef; functions for the new nodes are added.
    """
    names = {
        _computation_name(node): None
        for node in graph.nodes.values()
        if CLUSTER_ATTRIBUTE in node.definition.attr
    }
    for name in names:
        context = ReplicaContext(_replica_cores(name, graph.nodes), library, compiled)
        graph = _unroll_computation(graph, name, context)
    return graph


def _computation_name(node: Node) -> str:
    return node.definition.attr[CLUSTER_ATTRIBUTE].s.decode()


def _unroll_computation(graph: GraphIR, name: str, context: ReplicaContext) -> GraphIR:
    members = {
        node.name: node
        for node in graph.nodes.values()
        if _computation_name(node) == name and node.op != REPLICATE_METADATA
    }
    others = {node.name: node for node in graph.nodes.values() if node.name not in members}
    types = graph_ir.value_types(graph, context.library)
    computation = _extract_computation(graph, members, others, types)
    external = computation.external_values
    unrolled = unroll_replicas(
        computation,
        {value: _replica_values(value, others, context.num_replicas) for value in external},
        context,
        name,
        [*others, *graph.arguments],
    )
    for producer in {value.producer for value in external} & others.keys():
        if others[producer].op == REPLICATED_INPUT:
            del others[producer]
    return _insert_unrolled(graph, members, others, unrolled, types)


def _extract_computation(
    graph: GraphIR, members: dict[str, Node], others: dict[str, Node], types: dict[Value, int]
) -> GraphIR:
    external_values = {
        value: types[value]
        for node in members.values()
        for value in node.inputs
        if value.producer not in members
    }
    used = [*(value for node in others.values() for value in node.inputs), *graph.results]
    awaited = [
        *graph.control_outputs,
        *(name for node in others.values() for name in node.controls),
    ]
    return GraphIR(
        graph_ir.topological_order(members.values()),
        external_values=external_values,
        results=[value for value in used if value.producer in members],
        control_outputs=[name for name in awaited if name in members],
    )


def _insert_unrolled(
    graph: GraphIR,
    members: dict[str, Node],
    others: dict[str, Node],
    unrolled: UnrolledGraph,
    types: dict[Value, int],
) -> GraphIR:
    """Return the graph with new nodes in place of the nodes of a TPU computation."""

    def replaced_value(value: Value) -> Value:
        return unrolled.values[value][0] if value.producer in members else value

    def replaced_controls(names: list[str]) -> list[str]:
        return [
            awaited
            for name in names
            for awaited in (unrolled.awaited.get(name, []) if name in members else [name])
        ]

    for node in others.values():
        node.controls = replaced_controls(node.controls)
        if node.op == REPLICATED_OUTPUT and node.inputs[0].producer in members:
            copies = unrolled.values[node.inputs[0]]
            node.inputs = copies
            node.definition = _identity_n(types[Value(node.name)], len(copies))
        else:
            node.inputs = [replaced_value(value) for value in node.inputs]
    return dataclasses.replace(
        graph,
        nodes=graph_ir.topological_order([*others.values(), *unrolled.nodes]),
        results=[replaced_value(value) for value in graph.results],
        control_outputs=replaced_controls(graph.control_outputs),
    )


def _replica_cores(name: str, nodes: dict[str, Node]) -> list[int]:
    for node in nodes.values():
        if node.op == REPLICATE_METADATA and _computation_name(node) == name:
            return first_cores(node.definition)
    raise LoweringError(
        f"TPU computation {name!r} has no {REPLICATE_METADATA}, which holds the number of "
        f"replicas. Build the computation by tpu.rewrite, tpu.shard or tpu.replicate."
    )


def _replica_values(value: Value, nodes: dict[str, Node], num_replicas: int) -> list[Value]:
    node = nodes.get(value.producer)
    if node is None or node.op != REPLICATED_INPUT:
        return [value] * num_replicas
    if len(node.inputs) == num_replicas:
        return list(node.inputs)
    return [node.inputs[0]] * num_replicas


def _identity_n(dtype: int, count: int) -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    definition = NodeDef(op="IdentityN")
    definition.attr["T"].list.type.extend([dtype] * count)
    return definition
