"""The graph IR (intermediate representation), in which passes work on graphs and functions alike.

A node in a GraphDef refers to an output of another node by "node:1", and a node in a FunctionDef by
"node:output:0".
"""

import itertools
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuserve.graph.references import control_inputs, data_inputs
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import op_defs

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library


class Value(NamedTuple):
    """Identifies an output of a node, or an argument of a function."""

    producer: str
    output_index: int = 0


def parse_value(tensor: str) -> Value:
    """Convert a tensor name to a node output: "x:1" becomes Value("x", 1)."""
    name, _, index = tensor.partition(":")
    return Value(name, int(index or 0))


def format_value(value: Value) -> str:
    """Convert a node output to its tensor name: Value("x", 1) becomes "x:1"."""
    return f"{value.producer}:{value.output_index}"


@dataclass
class Node:
    """A node of a `GraphIR`. Its inputs are `Value`s, while those of a NodeDef are strings.

    Attributes:
      definition: a NodeDef with the op type, attributes and device of the node. Its fields `name`
        and `input` are ignored.
      controls: names of the nodes that must run before this node.
    """

    name: str
    definition: "NodeDef"
    inputs: list[Value] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)

    @property
    def op(self) -> str:
        """The op type, such as "MatMul"."""
        return self.definition.op


@dataclass
class GraphIR:
    """A graph, the body of a function, or a part of these, as nodes that refer to each other.

    Attributes:
      nodes: name → node, in topological order.
      arguments: for a function, argument name → DataType enum value.
      external_values: for a part of a graph, its inputs from the rest of the graph: output of a
        node outside of the part → DataType enum value.
      control_outputs: names of nodes that must run even if no result depends on them.
    """

    nodes: dict[str, Node]
    arguments: dict[str, int] = field(default_factory=dict)
    external_values: dict[Value, int] = field(default_factory=dict)
    results: list[Value] = field(default_factory=list)
    control_outputs: list[str] = field(default_factory=list)


def from_function_def(function: "FunctionDef", library: "Library") -> GraphIR:
    """Convert the body of a FunctionDef into a GraphIR.

    Args:
      library: the functions that its nodes call: function name → FunctionDef.
    """
    arguments = {argument.name: argument.type for argument in function.signature.input_arg}
    values = {
        f"{node.name}:{output}": Value(node.name, index)
        for node in function.node_def
        for index, (output, _) in enumerate(op_defs.node_outputs(node, library))
    }

    def value(reference: str) -> Value:
        if reference in arguments:
            return Value(reference)
        return values[reference if reference.count(":") == 2 else f"{reference}:0"]

    nodes = [
        Node(
            node.name,
            node,
            [value(reference) for reference in data_inputs(node)],
            [reference[1:] for reference in control_inputs(node)],
        )
        for node in function.node_def
    ]
    results = [value(function.ret[result.name]) for result in function.signature.output_arg]
    return GraphIR(
        topological_order(nodes),
        arguments,
        results=results,
        control_outputs=list(function.control_ret.values()),
    )


def from_node_defs(definitions: "Iterable[NodeDef]") -> GraphIR:
    """Convert NodeDefs of a GraphDef into a GraphIR.

    The NodeDefs may be a part of a graph, and have inputs from nodes that are not in `definitions`.
    """
    return GraphIR(
        topological_order(
            Node(
                node.name,
                node,
                [parse_value(reference) for reference in data_inputs(node)],
                [reference[1:] for reference in control_inputs(node)],
            )
            for node in definitions
        )
    )


def to_function_def(graph: GraphIR, name: str, library: "Library") -> "FunctionDef":
    """Convert a GraphIR to a FunctionDef."""
    from tensorflow.core.framework.function_pb2 import FunctionDef

    function = FunctionDef()
    function.signature.name = name
    outputs = {
        node.name: [output for output, _ in op_defs.node_outputs(node.definition, library)]
        for node in graph.nodes.values()
    }
    types = value_types(graph, library)

    def reference(value: Value) -> str:
        if value.producer in graph.arguments:
            return value.producer
        return f"{value.producer}:{outputs[value.producer][value.output_index]}"

    for argument, dtype in graph.arguments.items():
        function.signature.input_arg.add(name=argument, type=dtype)
    for node in graph.nodes.values():
        _write_node_def(node, function.node_def.add(), [reference(value) for value in node.inputs])
    for index, result in enumerate(graph.results):
        function.signature.output_arg.add(name=f"result_{index}", type=types[result])
        function.ret[f"result_{index}"] = reference(result)
    for index, node_name in enumerate(graph.control_outputs):
        function.signature.control_output.append(f"control_{index}")
        function.control_ret[f"control_{index}"] = node_name
    function.signature.is_stateful = any(
        op_defs.is_stateful(node.definition, library) for node in graph.nodes.values()
    )
    return function


def replace_function_body(function: "FunctionDef", graph: GraphIR, library: "Library") -> None:
    """Replace the body of a FunctionDef in place; keep its name, arguments and results.

    Args:
      library: the functions that the nodes of the new body call: function name → FunctionDef.
    """
    replacement = to_function_def(graph, function.signature.name, library)
    del function.node_def[:]
    function.node_def.extend(replacement.node_def)
    for old, new in zip(
        function.signature.output_arg, replacement.signature.output_arg, strict=True
    ):
        function.ret[old.name] = replacement.ret[new.name]
    function.control_ret.clear()
    function.signature.control_output[:] = list(replacement.signature.control_output)
    function.control_ret.update(replacement.control_ret)


def append_node_defs(nodes: Iterable[Node], node_defs: Any) -> None:
    """Convert nodes to NodeDefs, and append these to the `node` field of a GraphDef."""
    for node in nodes:
        references = [
            f"{value.producer}:{value.output_index}" if value.output_index else value.producer
            for value in node.inputs
        ]
        _write_node_def(node, node_defs.add(), references)


def _write_node_def(node: Node, node_def: "NodeDef", references: list[str]) -> None:
    node_def.CopyFrom(node.definition)
    node_def.name = node.name
    del node_def.input[:]
    node_def.input.extend(references)
    node_def.input.extend(f"^{name}" for name in dict.fromkeys(node.controls))


def value_types(graph: GraphIR, library: "Library") -> dict[Value, int]:
    """Return the DataType enum value of each argument, external value and node output."""
    types = {Value(name): dtype for name, dtype in graph.arguments.items()} | graph.external_values
    for node in graph.nodes.values():
        for index, (_, dtype) in enumerate(op_defs.node_outputs(node.definition, library)):
            types[Value(node.name, index)] = dtype
    return types


def topological_order(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return name → node, sorted topologically: each node comes after its inputs."""
    unordered = {node.name: node for node in nodes}
    ordered: dict[str, Node] = {}
    entered: set[str] = set()
    # This depth-first search does not use recursion, because a graph may be deeper than Python's
    # recursion limit.
    stack: list[tuple[str, bool]] = [(name, False) for name in reversed(unordered)]
    while stack:
        name, is_ready = stack.pop()
        if is_ready:
            ordered[name] = unordered[name]
            continue
        if name in entered or name not in unordered:
            continue
        entered.add(name)
        stack.append((name, True))
        stack.extend(
            (needed, False) for needed in predecessors(unordered[name]) if needed not in ordered
        )
    return ordered


def predecessors(node: Node) -> list[str]:
    """Return the names of the nodes and arguments that are data or control inputs of a node."""
    return [*(value.producer for value in node.inputs), *node.controls]


def find_needed(
    nodes: Mapping[str, Node], names: Iterable[str], stop: Collection[str] = ()
) -> set[str]:
    """Return the names of some nodes and of all nodes that they depend on."""
    return find_reachable(
        names,
        lambda name: predecessors(nodes[name]) if name in nodes and name not in stop else None,
    )


def resolve(value: Value, replaced: Mapping[Value, Value]) -> Value:
    """Return the value to use in place of `value` after nodes of a graph were replaced."""
    while value in replaced:
        value = replaced[value]
    return value


def unused_name(name: str, taken: Container[str]) -> str:
    """Return `name`, with a number appended if `taken` already contains it."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(
        candidate for candidate in itertools.chain([name], numbered) if candidate not in taken
    )
