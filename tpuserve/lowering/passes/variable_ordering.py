"""The order of units that share a variable, where their data does not tell it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import graph_ir as bodies
from tpuserve.lowering.ir import op_traits
from tpuserve.lowering.ir.graph_ir import Body, Output
from tpuserve.lowering.passes.clustering import Closure, Unit

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef


class Order:
    """Keeps updates of a variable after the reads that come before, and before those after."""

    def __init__(self, body: Body, library: "Mapping[str, FunctionDef]") -> None:
        types = bodies.types_of(body, library)
        self._is_handle = {each for each, kind in types.items() if op_traits.is_handle(kind)}
        self._library = library
        self._done: list[tuple[set[Output], bool, list[str]]] = []

    def before(self, unit: Unit, closure: Closure) -> list[str]:
        """The nodes made so far that a unit must wait for, because of variables they share."""
        touched, writes = self._touched(unit, closure)
        return [
            name
            for others, other_writes, names in self._done
            if (writes or other_writes) and touched & others
            for name in names
        ]

    def done(self, unit: Unit, closure: Closure, names: list[str]) -> None:
        """Notes what was made of a unit."""
        touched, writes = self._touched(unit, closure)
        if touched and names:
            self._done.append((touched, writes, names))

    def _touched(self, unit: Unit, closure: Closure) -> tuple[set[Output], bool]:
        touched = {each for each in closure.inputs if each in self._is_handle}
        return touched, any(
            op_traits.writes_variable(each.definition, self._library) for each in unit.nodes
        )
