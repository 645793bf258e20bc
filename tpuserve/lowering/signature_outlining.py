"""Moves the nodes of each signature into a function that XLA compiles as a whole."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuserve.errors import UnsupportedModel
from tpuserve.lowering.ir import graph_ir, op_defs, outlining
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes.functionalization import FunctionalGraph, functionalize
from tpuserve.saved_model import dtypes
from tpuserve.saved_model.signature import Signature

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from tpuserve.lowering.ir.op_defs import Library

_VARIABLE = "VarHandleOp"
# Op type → why a signature that needs such an op cannot be compiled by XLA, for the error message.
# XLA silently drops ops that check or print a value.
_REFUSED_OPS = dict.fromkeys(
    ("Assert", "CheckNumerics", "CheckNumericsV2", "Print", "PrintV2"), "which XLA leaves out"
)
_DTYPE_NUMBERS = {name: number for number, name in dtypes.DTYPE_NAMES.items()}


def outline_signatures(
    graph: "GraphDef", signatures: Mapping[str, Signature]
) -> dict[str, Signature]:
    """Add to a graph, for each signature, a function and a call of it, which XLA must compile.

    The arguments of a function are the inputs of its signature and the handles of variables.

    Raises:
      UnsupportedModel: a signature has string inputs or outputs, or needs an op that XLA cannot
        compile, leaves out, or computes with other random numbers.
    """
    op_defs.restore_default_attrs(graph)
    library = {function.signature.name: function for function in graph.library.function}
    num_functions = len(library)
    main = functionalize(graph_ir.from_node_defs(graph.node), library)
    graph.library.function.extend(list(library.values())[num_functions:])
    return {
        name: _outline(graph, main, library, name, signature)
        for name, signature in sorted(signatures.items())
    }


def _outline(
    graph: "GraphDef", main: FunctionalGraph, library: "Library", name: str, signature: Signature
) -> Signature:
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for alias, spec in specs.items():
            if spec.dtype in ("string", "resource", "variant") or not spec.name:
                raise UnsupportedModel(
                    f"{kind} {alias!r} of signature {name!r} has the type {spec.dtype}"
                )
    fed = {graph_ir.parse_value(spec.name): spec for _, spec in sorted(signature.inputs.items())}
    results = {
        alias: graph_ir.resolve(graph_ir.parse_value(spec.name), main.replaced)
        for alias, spec in sorted(signature.outputs.items())
    }
    body = _find_body(main.graph, {value.producer for value in fed}, results.values())
    _check_ops(body, library, name)
    handles = [Value(node.name) for node in body.values() if node.op == _VARIABLE]
    arguments = {
        value: Value(graph_ir.unused_name(f"argument_{number}", body))
        for number, value in enumerate([*fed, *handles])
    }
    function = graph_ir.to_function_def(
        GraphIR(
            {
                node.name: _copy_node(node, arguments, body)
                for node in body.values()
                if node.op != _VARIABLE
            },
            {
                argument.producer: _DTYPE_NUMBERS[fed[value].dtype]
                if value in fed
                else dtypes.RESOURCE
                for value, argument in arguments.items()
            },
            results=[arguments.get(value, value) for value in results.values()],
        ),
        graph_ir.unused_name(f"xla_{len(graph.library.function)}", library),
        library,
    )
    function.attr[outlining.MUST_COMPILE].b = True
    call = Node(
        graph_ir.unused_name(function.signature.name, main.graph.nodes),
        outlining.make_call(function.signature.name, function, must_compile=True),
        list(arguments),
    )
    graph.library.function.append(function)
    graph_ir.append_node_defs([call], graph.node)
    outputs = {
        alias: dataclasses.replace(signature.outputs[alias], name=f"{call.name}:{index}")
        for index, alias in enumerate(results)
    }
    return dataclasses.replace(signature, outputs=outputs)


def _find_body(main: GraphIR, fed: set[str], results: Any) -> dict[str, Node]:
    """Return name → node, in topological order, for the nodes that compute a signature."""
    needed: set[str] = set()
    pending = [value.producer for value in results]
    while pending:
        name = pending.pop()
        if name in needed or name in fed:
            continue
        if name not in main.nodes:
            raise UnsupportedModel(f"node {name!r} is not in the graph")
        needed.add(name)
        pending.extend(graph_ir.predecessors(main.nodes[name]))
    return {name: node for name, node in main.nodes.items() if name in needed}


def _check_ops(body: Mapping[str, Node], library: "Library", signature: str) -> None:
    for node in op_defs.walk_calls((node.definition for node in body.values()), library):
        definition = op_defs.op_definition(node, library)
        reason = _REFUSED_OPS.get(node.op)
        if definition is None:
            reason = "which TensorFlow does not know"
        elif {"seed", "seed2"} <= {attribute.name for attribute in definition.attr}:
            reason = "which draws other random numbers in XLA"
        elif op_defs.can_grow(node):
            reason = "whose array can grow, and which XLA truncates"
        if reason is not None:
            raise UnsupportedModel(
                f"signature {signature!r} needs op {node.op} ({node.name!r}), {reason}"
            )


def _copy_node(node: Node, arguments: Mapping[Value, Value], body: Mapping[str, Node]) -> Node:
    definition = type(node.definition)()
    definition.CopyFrom(node.definition)
    definition.device = ""
    definition.attr.pop("_class", None)
    return Node(
        node.name,
        definition,
        [arguments.get(value, value) for value in node.inputs],
        [name for name in node.controls if name in body and body[name].op != _VARIABLE],
    )
