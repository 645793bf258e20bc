"""Finds control inputs that order the reads and updates of each variable.

They are added to the graph that does the work of all replicas of a TPU computation.
"""

from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Value
from tpuserve.lowering.passes.clustering import Cluster, ClusterClosure
from tpuserve.lowering.rules import op_traits

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library


class VariableOrdering:
    """Orders the clusters of nodes that use the same variable.

    An update of a variable runs after all reads and updates of it in earlier clusters, and before
    all reads and updates of it in later clusters.
    """

    def __init__(self, graph: GraphIR, library: "Library") -> None:
        types = graph_ir.value_types(graph, library)
        self._handles = {value for value, dtype in types.items() if op_defs.is_handle(dtype)}
        self._library = library
        # For each call of `record`: the resource handles that the cluster uses, whether the cluster
        # updates a variable, and the names of the nodes that run the cluster.
        self._emitted: list[tuple[set[Value], bool, list[str]]] = []

    def nodes_before(self, cluster: Cluster, closure: ClusterClosure) -> list[str]:
        """Return the names of the nodes that must run before a cluster because of variables.

        These are the nodes that `record` has stored for earlier clusters which use a variable of
        this cluster.
        """
        variables, has_update = self._accesses(cluster, closure)
        return [
            name
            for other_variables, other_has_update, names in self._emitted
            if (has_update or other_has_update) and variables & other_variables
            for name in names
        ]

    def record(self, cluster: Cluster, closure: ClusterClosure, names: list[str]) -> None:
        """Record which nodes of the new graph run a cluster, for later calls of `nodes_before`."""
        variables, has_update = self._accesses(cluster, closure)
        if variables and names:
            self._emitted.append((variables, has_update, names))

    def _accesses(self, cluster: Cluster, closure: ClusterClosure) -> tuple[set[Value], bool]:
        variables = {value for value in closure.inputs if value in self._handles}
        return variables, any(
            op_traits.writes_variable(node.definition, self._library) for node in cluster.nodes
        )
