"""A graph, or the body of a function, as nodes that refer to outputs by number.

GraphDefs and FunctionDefs spell references in two ways. Here they are one, so that what is done
to a body need not know where it comes from.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tpuserve.lowering.ir import op_traits

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_traits import Library


class Value(NamedTuple):
    """One output of a node, or an argument of the body, whose number is 0."""

    producer: str
    number: int = 0


@dataclass
class Node:
    """A node apart from its references.

    Attributes:
      definition: op, attributes and device; its `input` and `name` are not looked at.
      inputs: where its data comes from.
      controls: names of nodes that must run before it.
    """

    name: str
    definition: "NodeDef"
    inputs: list[Value] = field(default_factory=list)
    controls: list[str] = field(default_factory=list)


@dataclass
class GraphIR:
    """Nodes by name, each after those it refers to.

    Attributes:
      arguments: name → number of its type.
      outside: what nodes refer to beyond the body, with the number of its type.
      results: what the body returns, in order.
      kept: nodes that must run though nothing refers to them.
    """

    nodes: dict[str, Node]
    arguments: dict[str, int] = field(default_factory=dict)
    outside: dict[Value, int] = field(default_factory=dict)
    results: list[Value] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def from_function_def(function: "FunctionDef", library: "Library") -> GraphIR:
    """The body of a function."""
    arguments = {each.name: each.type for each in function.signature.input_arg}
    numbers = {
        f"{node.name}:{name}": Value(node.name, number)
        for node in function.node_def
        for number, (name, _) in enumerate(op_traits.outputs_of(node, library))
    }

    def output(reference: str) -> Value:
        if reference in arguments:
            return Value(reference)
        return numbers[reference if reference.count(":") == 2 else f"{reference}:0"]

    nodes = [
        Node(
            node.name,
            node,
            [output(each) for each in node.input if not each.startswith("^")],
            [each[1:] for each in node.input if each.startswith("^")],
        )
        for node in function.node_def
    ]
    results = [output(function.ret[each.name]) for each in function.signature.output_arg]
    kept = list(function.control_ret.values())
    return GraphIR(topological_order(nodes), arguments, results=results, kept=kept)


def from_node_defs(definitions: "Iterable[NodeDef]") -> GraphIR:
    """The body that the nodes of a GraphDef make; references to other nodes stay as they are."""

    def output(reference: str) -> Value:
        name, _, number = reference.partition(":")
        return Value(name, int(number or 0))

    return GraphIR(
        topological_order(
            Node(
                node.name,
                node,
                [output(each) for each in node.input if not each.startswith("^")],
                [each[1:] for each in node.input if each.startswith("^")],
            )
            for node in definitions
        )
    )


def to_function_def(body: GraphIR, name: str, library: "Library") -> "FunctionDef":
    """A function of a body.

    Args:
      body: its node names and arguments become those of the function.
      name: of the function.
      library: has the functions that nodes of the body may be named after.
    """
    from tensorflow.core.framework.function_pb2 import FunctionDef

    function = FunctionDef()
    function.signature.name = name
    names = {
        each.name: [output for output, _ in op_traits.outputs_of(each.definition, library)]
        for each in body.nodes.values()
    }
    types = value_types(body, library)

    def reference(output: Value) -> str:
        if output.producer in body.arguments:
            return output.producer
        return f"{output.producer}:{names[output.producer][output.number]}"

    for argument, type_number in body.arguments.items():
        function.signature.input_arg.add(name=argument, type=type_number)
    for node in body.nodes.values():
        _write(node, function.node_def.add(), [reference(each) for each in node.inputs])
    for number, result in enumerate(body.results):
        function.signature.output_arg.add(name=f"result_{number}", type=types[result])
        function.ret[f"result_{number}"] = reference(result)
    for number, kept in enumerate(body.kept):
        function.signature.control_output.append(f"kept_{number}")
        function.control_ret[f"kept_{number}"] = kept
    function.signature.is_stateful = any(
        op_traits.is_stateful(each.definition, library) for each in body.nodes.values()
    )
    return function


def replace_function_body(function: "FunctionDef", body: GraphIR, library: "Library") -> None:
    """Gives a function another body; its signature stays."""
    made = to_function_def(body, function.signature.name, library)
    del function.node_def[:]
    function.node_def.extend(made.node_def)
    for argument, result in zip(
        function.signature.output_arg, made.signature.output_arg, strict=True
    ):
        function.ret[argument.name] = made.ret[result.name]
    function.control_ret.clear()
    function.signature.control_output[:] = list(made.signature.control_output)
    function.control_ret.update(made.control_ret)


def append_node_defs(nodes: Iterable[Node], to: "Iterable[NodeDef]") -> None:
    """Appends nodes to those of a GraphDef."""
    for node in nodes:
        _write(
            node,
            to.add(),  # type: ignore[attr-defined]
            [
                f"{each.producer}:{each.number}" if each.number else each.producer
                for each in node.inputs
            ],
        )


def _write(node: Node, to: "NodeDef", inputs: list[str]) -> None:
    to.CopyFrom(node.definition)
    to.name = node.name
    del to.input[:]
    to.input.extend(inputs)
    to.input.extend(f"^{each}" for each in dict.fromkeys(node.controls))


def value_types(body: GraphIR, library: "Library") -> dict[Value, int]:
    """The type of every argument and of every output of a node, by number."""
    types = {Value(name): number for name, number in body.arguments.items()} | body.outside
    for node in body.nodes.values():
        for number, (_, each) in enumerate(op_traits.outputs_of(node.definition, library)):
            types[Value(node.name, number)] = each
    return types


def topological_order(nodes: Iterable[Node]) -> dict[str, Node]:
    """Nodes by name, each after those that it refers to."""
    waiting = {each.name: each for each in nodes}
    ordered: dict[str, Node] = {}
    entered: set[str] = set()
    # Depth first without recursion: graphs are deeper than Python's stack.
    stack: list[tuple[str, bool]] = [(name, False) for name in reversed(waiting)]
    while stack:
        name, is_ready = stack.pop()
        if is_ready:
            ordered[name] = waiting[name]
            continue
        if name in entered or name not in waiting:
            continue
        entered.add(name)
        stack.append((name, True))
        stack.extend((each, False) for each in predecessors(waiting[name]) if each not in ordered)
    return ordered


def predecessors(node: Node) -> list[str]:
    """The names of what a node refers to."""
    return [*(each.producer for each in node.inputs), *node.controls]
