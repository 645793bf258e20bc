"""Replaces ResourceGatherNd, which XLA cannot compile, by a ReadVariableOp and a GatherNd."""

import dataclasses

from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value


def replace_resource_gathers(graph: GraphIR) -> GraphIR:
    """Return a copy of a graph in which ReadVariableOp and GatherNd replace ResourceGatherNd."""
    if not any(node.op == "ResourceGatherNd" for node in graph.nodes.values()):
        return graph
    nodes = dict(graph.nodes)
    for name, node in graph.nodes.items():
        if node.op != "ResourceGatherNd":
            continue
        handle, indices = node.inputs
        read = graph_ir.unused_name(f"{name}/ReadVariableOp", nodes)
        definition = type(node.definition)(op="ReadVariableOp")
        definition.attr["dtype"].CopyFrom(node.definition.attr["dtype"])
        nodes[read] = Node(read, definition, [handle], list(node.controls))
        gather = type(node.definition)(op="GatherNd")
        gather.attr["Tparams"].CopyFrom(node.definition.attr["dtype"])
        gather.attr["Tindices"].CopyFrom(node.definition.attr["Tindices"])
        op_defs.add_default_attrs([gather])
        nodes[name] = Node(name, gather, [Value(read), indices], list(node.controls))
    return dataclasses.replace(graph, nodes=graph_ir.topological_order(nodes.values()))
