"""The data of replica unrolling: the replicas, and the graph of all replicas while it is built."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir import graph_ir, outlining
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef


@dataclass
class ReplicaContext:
    """The replicas of a computation, and the functions that they call.

    Attributes:
      cores: cores[r] is the ordinal of the core whose infeed and outfeed replica r uses.
      library: function name → function; the lowering adds functions.
      compiled: whether XLA compiles the clusters of nodes; otherwise they run op by op.
      devices: devices[r] is the device that does the work of replica r, or "" for any device. Empty
        if any device may do the work of every replica.
    """

    cores: Sequence[int]
    library: "dict[str, FunctionDef]"
    compiled: bool = True
    devices: Sequence[str] = ()

    @property
    def is_distributed(self) -> bool:
        """Whether the replicas run on several devices, so that variables are not on all of them."""
        return len(set(self.devices)) > 1

    def device(self, replica: int) -> str:
        """Return the device that does the work of a replica; "" for any device."""
        return self.devices[replica] if self.devices else ""

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.cores)

    def add_function(self, body: GraphIR, name: str, *, must_compile: bool = False) -> str:
        """Add a function to the library.

        Args:
          body: the function's body.
          name: the function's name; a number is appended if the library has the name.
          must_compile: whether XLA must compile the function.

        Returns:
          The function's name.
        """
        name = graph_ir.unused_name(name, self.library)
        function = graph_ir.to_function_def(body, name, self.library)
        if must_compile:
            function.attr[outlining.MUST_COMPILE].b = True
        self.library[name] = function
        return name


@dataclass
class UnrolledGraph:
    """The single graph that does the work of all replicas.

    Attributes:
      nodes: in the order in which they were added, which may not be topological.
      values: value or argument of the original graph, the graph of one replica → the values that
        replace it, one for each replica.
      awaited: name of a node of the original graph → names of the new nodes that replace it as a
        control input.
      taken: the names that new nodes must not have.
    """

    nodes: list[Node] = field(default_factory=list)
    values: dict[Value, list[Value]] = field(default_factory=dict)
    awaited: dict[str, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def node_maker(
        self, prefix: str, controls: list[str], device: Callable[[int], str]
    ) -> Callable[..., Value]:
        """Return a function that adds nodes; `ReplicatedOp.make_node` describes its parameters.

        Args:
          prefix: begins the names of the nodes.
          controls: the control inputs of the nodes.
          device: takes the number of a replica; returns the device of nodes for this replica.
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
                self.add_node(
                    f"{scope}/{definition.op}",
                    definition,
                    list(inputs),
                    controls,
                    device="" if replica is None else device(replica),
                )
            )

        return make_node

    def add_node(
        self,
        name: str,
        definition: Any,
        inputs: list[Value],
        controls: list[str],
        *,
        device: str = "",
    ) -> str:
        """Add a node; return its name: `name`, with a number appended if the name is taken.

        Args:
          name: the name.
          definition: op and attributes; see `Node.definition`.
          inputs: the values that the node takes.
          controls: names of the nodes that must run before the node.
          device: the device of the node; "" for the device in the definition.
        """
        if device:
            original, definition = definition, type(definition)()
            definition.CopyFrom(original)
            definition.device = device
        name = graph_ir.unused_name(name, self.taken)
        self.taken.add(name)
        # Leave out a control input if the same node is also a data input of the new node.
        producers = {value.producer for value in inputs}
        remaining = [
            control
            for control in dict.fromkeys(controls)
            if control not in producers and control != name
        ]
        self.nodes.append(Node(name, definition, inputs, remaining))
        return name


def _set_attribute(attribute: Any, name: str, value: Any) -> None:
    """Set an AttrValue to a list of DataTypes, to a DataType or to an integer.

    An integer `value` is a DataType if the attribute's name is "T", "Tidx" or "dtype".
    """
    if isinstance(value, list):
        attribute.list.type.extend(value)
    elif name in ("T", "Tidx", "dtype"):
        attribute.type = value
    else:
        attribute.i = value
