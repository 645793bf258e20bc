"""The order of units that share a variable, where their data does not tell it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir, op_traits
from tpuserve.lowering.ir.graph_ir import GraphIR, Value
from tpuserve.lowering.passes.clustering import Cluster, ClusterClosure

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef


class VariableOrdering:
    """Keeps updates of a variable after the reads that come before, and before those after."""

    def __init__(self, body: GraphIR, library: "Mapping[str, FunctionDef]") -> None:
        types = graph_ir.value_types(body, library)
        self._is_handle = {each for each, kind in types.items() if op_traits.is_handle(kind)}
        self._library = library
        self._done: list[tuple[set[Value], bool, list[str]]] = []

    def before(self, unit: Cluster, closure: ClusterClosure) -> list[str]:
        """The nodes made so far that a unit must wait for, because of variables they share."""
        touched, writes = self._touched(unit, closure)
        return [
            name
            for others, other_writes, names in self._done
            if (writes or other_writes) and touched & others
            for name in names
        ]

    def done(self, unit: Cluster, closure: ClusterClosure, names: list[str]) -> None:
        """Notes what was made of a unit."""
        touched, writes = self._touched(unit, closure)
        if touched and names:
            self._done.append((touched, writes, names))

    def _touched(self, unit: Cluster, closure: ClusterClosure) -> tuple[set[Value], bool]:
        touched = {each for each in closure.inputs if each in self._is_handle}
        return touched, any(
            op_traits.writes_variable(each.definition, self._library) for each in unit.nodes
        )
