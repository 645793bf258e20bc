"""Data structures of replica unrolling: the replicas, and the graph that is built for them.

Each replica of a TPU computation runs the same graph. Replica unrolling builds one graph that does
the work of all replicas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir import graph_ir, outlining
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef


@dataclass
class ReplicaContext:
    """The replicas of a TPU computation, and the functions that they call.

    Attributes:
      cores: cores[r] is the ordinal of the TPU core whose infeed and outfeed replica r uses.
      library: function name → FunctionDef; replica unrolling adds functions.
    """

    cores: Sequence[int]
    library: "dict[str, FunctionDef]"
    compiled: bool = True

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.cores)

    def add_function(self, body: GraphIR, name: str, *, must_compile: bool = False) -> str:
        """Add a function to the library."""
        name = graph_ir.unused_name(name, self.library)
        function = graph_ir.to_function_def(body, name, self.library)
        if must_compile:
            function.attr[outlining.MUST_COMPILE].b = True
        self.library[name] = function
        return name


@dataclass
class UnrolledGraph:
    """The graph that does the work of all replicas, while it is built.

    The original graph is the one that each replica runs.

    Attributes:
      values: node output or argument in the original graph → the values in this graph that replace
        it, one for each replica.
      awaited: name of a node in the original graph → names of the nodes in this graph that replace
        the node as a control input.
      effects: names of the nodes that update variables or run on the host.
    """

    nodes: list[Node] = field(default_factory=list)
    values: dict[Value, list[Value]] = field(default_factory=dict)
    awaited: dict[str, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    effects: list[str] = field(default_factory=list)

    def node_maker(self, prefix: str, controls: list[str]) -> Callable[..., Value]:
        """Return a function that adds a node to this graph.

        The function becomes `ReplicatedOp.make_node`. The docstring of `ReplicatedOp` describes the
        arguments of the function.
        """
        from tensorflow.core.framework.node_def_pb2 import NodeDef

        from tpuserve.tensorflow_internals import tensor_util

        def make_node(
            op: Any, inputs: Sequence[Value], replica: int | None = None, **attributes: Any
        ) -> Value:
            definition = op if isinstance(op, NodeDef) else NodeDef(op=op)
            if definition.op == "Const" and attributes:
                value = tensor_util.make_tensor_proto(attributes.pop("value"))
                definition.attr["dtype"].type = value.dtype
                definition.attr["value"].tensor.CopyFrom(value)
            for name, attribute in attributes.items():
                _set_attribute(definition.attr[name], name, attribute)
            scope = prefix if replica is None else f"{prefix}/replica_{replica}"
            return Value(
                self.add_node(f"{scope}/{definition.op}", definition, list(inputs), controls)
            )

        return make_node

    def add_node(self, name: str, definition: Any, inputs: list[Value], controls: list[str]) -> str:
        """Add a node.

        Args:
          controls: names of the nodes that must run before the node.
        """
        name = graph_ir.unused_name(name, self.taken)
        self.taken.add(name)
        # A control input is redundant if the same node is also a data input.
        producers = {value.producer for value in inputs}
        remaining = [
            control
            for control in dict.fromkeys(controls)
            if control not in producers and control != name
        ]
        self.nodes.append(Node(name, definition, inputs, remaining))
        return name


def _set_attribute(attribute: Any, name: str, value: Any) -> None:
    """Set an attribute of a new node to a list of DataTypes, to a DataType or to an integer."""
    if isinstance(value, list):
        attribute.list.type.extend(value)
    elif name in ("T", "Tidx", "dtype"):
        attribute.type = value
    else:
        attribute.i = value
