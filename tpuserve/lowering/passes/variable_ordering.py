"""Orders clusters that use the same variable, but do not pass tensors to each other."""

from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Value
from tpuserve.lowering.passes.clustering import Cluster, ClusterClosure
from tpuserve.lowering.rules import op_traits

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library


class VariableOrdering:
    """Orders the clusters that use the same variable.

    An update of the variable runs after all reads and updates by earlier clusters, and before
    the reads and updates by later clusters.

    Args:
      graph: the graph of one replica.
      library: function name → function.
    """

    def __init__(self, graph: GraphIR, library: "Library") -> None:
        types = graph_ir.value_types(graph, library)
        self._handles = {value for value, dtype in types.items() if op_defs.is_handle(dtype)}
        self._library = library
        # One entry per call of `record`: the resource handles that the cluster takes, whether the
        # cluster updates a variable, and the names of the nodes that were emitted for it.
        self._emitted: list[tuple[set[Value], bool, list[str]]] = []

    def nodes_before(self, cluster: Cluster, closure: ClusterClosure) -> list[str]:
        """Return the names of the nodes that must run before a cluster for its use of variables.

        These are nodes from earlier calls of `record` that use a variable of the cluster. Nodes
        that only read a variable need not run before a cluster that only reads the variable.
        """
        variables, has_update = self._accesses(cluster, closure)
        return [
            name
            for other_variables, other_has_update, names in self._emitted
            if (has_update or other_has_update) and variables & other_variables
            for name in names
        ]

    def record(self, cluster: Cluster, closure: ClusterClosure, names: list[str]) -> None:
        """Remember the names of the nodes that do a cluster's work, for later `nodes_before`."""
        variables, has_update = self._accesses(cluster, closure)
        if variables and names:
            self._emitted.append((variables, has_update, names))

    def _accesses(self, cluster: Cluster, closure: ClusterClosure) -> tuple[set[Value], bool]:
        """Return the resource handles that a cluster takes, and whether it updates a variable."""
        variables = {value for value in closure.inputs if value in self._handles}
        return variables, any(
            op_traits.writes_variable(node.definition, self._library) for node in cluster.nodes
        )
