"""The graph IR (intermediate representation): a graph or function body as nodes and values.

References between nodes differ in GraphDefs ("node:1") and in FunctionDefs ("node:output:0"). The
IR has one form of reference, so that the passes work on both.
"""

import itertools
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import op_defs

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library


class Value(NamedTuple):
    """One output of a node, or an argument of the graph.

    Attributes:
      producer: the name of the node or argument.
      output_index: which output of the node; 0 for an argument.
    """

    producer: str
    output_index: int = 0


@dataclass
class Node:
    """A node whose inputs are `Value`s. The inputs of a NodeDef are strings.

    Attributes:
      name: unique in its graph.
      definition: op, attributes and device; `definition.name` and `definition.input` are ignored.
      inputs: the values that the node takes.
      controls: names of the nodes that must run before this node.
    """

    name: str
    definition: "NodeDef"
    inputs: list[Value] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)

    @property
    def op(self) -> str:
        """The op type."""
        return self.definition.op


@dataclass
class GraphIR:
    """A graph or a function body.

    Attributes:
      nodes: name → node, in topological order.
      arguments: argument name → DataType enum value.
      external_values: value that nodes of the graph take from a node outside of the graph → its
        DataType enum value.
      results: the values that the graph returns, in order.
      control_outputs: names of nodes that must run although no node refers to them.
    """

    nodes: dict[str, Node]
    arguments: dict[str, int] = field(default_factory=dict)
    external_values: dict[Value, int] = field(default_factory=dict)
    results: list[Value] = field(default_factory=list)
    control_outputs: list[str] = field(default_factory=list)


def from_function_def(function: "FunctionDef", library: "Library") -> GraphIR:
    """Convert the body of a FunctionDef into a GraphIR."""
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
            [value(reference) for reference in node.input if not reference.startswith("^")],
            [reference[1:] for reference in node.input if reference.startswith("^")],
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
    """Convert nodes of a GraphDef into a GraphIR.

    The inputs of the nodes may come from other nodes, which are not in `definitions`.
    """

    def value(reference: str) -> Value:
        name, _, index = reference.partition(":")
        return Value(name, int(index or 0))

    return GraphIR(
        topological_order(
            Node(
                node.name,
                node,
                [value(reference) for reference in node.input if not reference.startswith("^")],
                [reference[1:] for reference in node.input if reference.startswith("^")],
            )
            for node in definitions
        )
    )


def to_function_def(graph: GraphIR, name: str, library: "Library") -> "FunctionDef":
    """Serialise a graph as a FunctionDef.

    Args:
      graph: its node and argument names become those of the function.
      name: the function's name.
      library: the functions that nodes of the graph call by name.
    """
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
    """Replace the body of a function in place; its name, arguments and results stay."""
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
    """Append nodes to the `node` field of a GraphDef."""
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
    """Return the DataType enum value of every argument, external value and node output."""
    types = {Value(name): dtype for name, dtype in graph.arguments.items()} | graph.external_values
    for node in graph.nodes.values():
        for index, (_, dtype) in enumerate(op_defs.node_outputs(node.definition, library)):
            types[Value(node.name, index)] = dtype
    return types


def topological_order(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return name → node, ordered so that each node comes after the nodes that it refers to."""
    unordered = {node.name: node for node in nodes}
    ordered: dict[str, Node] = {}
    entered: set[str] = set()
    # The depth-first search uses no recursion, because graphs are deeper than Python's stack.
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
    """Return the names of the nodes and arguments that a node has as data or control inputs."""
    return [*(value.producer for value in node.inputs), *node.controls]


def find_needed(
    nodes: Mapping[str, Node], names: Iterable[str], stop: Collection[str] = ()
) -> set[str]:
    """Return the names of the given nodes, and of all nodes that they depend on.

    Args:
      nodes: Name → node of a graph.
      names: Names of the nodes to start from; those of nodes outside of the graph are left out.
      stop: Names of nodes that are left out, together with the nodes that only they depend on.
    """
    return find_reachable(
        names,
        lambda name: predecessors(nodes[name]) if name in nodes and name not in stop else None,
    )


def unused_name(name: str, taken: Container[str]) -> str:
    """Return the name, with a number appended if the name is already taken."""
    numbered = (f"{name}_{number}" for number in itertools.count(1))
    return next(
        candidate for candidate in itertools.chain([name], numbered) if candidate not in taken
    )
