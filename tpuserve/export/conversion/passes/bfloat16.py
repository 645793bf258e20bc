"""Rewrites a TPU computation to bfloat16; its inputs, outputs and variables stay float32."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpuserve.graph.graph_walk import called_functions
from tpuserve.lowering.ir import graph_ir, op_defs
from tpuserve.lowering.ir.function_renaming import rename_calls
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.rules.xla_kernels import has_xla_kernel

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

_FLOAT32, _BFLOAT16 = tf.float32.as_datatype_enum, tf.bfloat16.as_datatype_enum

# Types of the ops that stay float32: variables and constants, whose values are cast where they are
# used; Bitcast, whose result depends on the bits of a float32; XlaCallModule, whose StableHLO fixes
# its types; and ops that count or accumulate, because bfloat16 cannot represent all integers above
# 256.
_FLOAT32_OPS = frozenset(
    re.findall(
        r"\w+",
        """
    Bitcast Const Cumprod Cumsum LinSpace Range ReadVariableOp ResourceGather ResourceGatherNd
    VarHandleOp XlaCallModule
        """,
    )
)
# Op type → names of the type attributes that stay float32. U is the type of the scale, offset, mean
# and variance of a batch normalisation.
_FLOAT32_ATTRIBUTES = {
    "FusedBatchNormV2": frozenset({"U"}),
    "FusedBatchNormV3": frozenset({"U"}),
}
_SUFFIX = "_bfloat16"


def to_bfloat16(
    body: GraphIR, library: "dict[str, Any]", keep_float32: Sequence[re.Pattern[str]] = ()
) -> GraphIR:
    """Return a copy of a graph in which all ops with a bfloat16 kernel in XLA use bfloat16.

    Args:
      library: Function name → FunctionDef. For each function that a loop or branch calls, a copy
        that computes in bfloat16 is added to the dict.
    """
    return _Caster(body, library, keep_float32).convert(body.arguments)


class _Caster:
    """Converts one graph or function body to bfloat16, and adds the casts that this requires."""

    def __init__(
        self, graph: GraphIR, library: "dict[str, Any]", keep: Sequence[re.Pattern[str]]
    ) -> None:
        self._graph = graph
        self._library = library
        self._keep = keep
        self._before = graph_ir.value_types(graph, library)
        self._types: dict[Value, int] = {}
        self._nodes: dict[str, Node] = {}
        self._casts: dict[Value, Value] = {}

    def convert(
        self, arguments: dict[str, int], result_types: Sequence[int] | None = None
    ) -> GraphIR:
        """Return a copy of the graph that computes in bfloat16 in place of float32."""
        self._types |= {Value(name): dtype for name, dtype in arguments.items()}
        for node in self._graph.nodes.values():
            self._convert_node(node)
        final_types = result_types or [self._before[value] for value in self._graph.results]
        results = [
            self._cast(value, dtype)
            for value, dtype in zip(self._graph.results, final_types, strict=True)
        ]
        return dataclasses.replace(
            self._graph,
            nodes=graph_ir.topological_order(self._nodes.values()),
            arguments=arguments,
            results=results,
        )

    def _convert_node(self, node: Node) -> None:
        definition = self._choose_definition(node)
        op = op_defs.op_definition(definition, self._library)
        input_types = _list_types(op.input_arg, definition)
        inputs = [
            self._cast(value, dtype) for value, dtype in zip(node.inputs, input_types, strict=True)
        ]
        self._nodes[node.name] = dataclasses.replace(node, definition=definition, inputs=inputs)
        for index, (_, dtype) in enumerate(op_defs.node_outputs(definition, self._library)):
            self._types[Value(node.name, index)] = dtype

    def _choose_definition(self, node: Node) -> "NodeDef":
        """Return a node's NodeDef with bfloat16 in place of float32."""
        if node.op in _FLOAT32_OPS or any(pattern.search(node.name) for pattern in self._keep):
            return node.definition
        definition = type(node.definition)()
        definition.CopyFrom(node.definition)
        op = op_defs.op_definition(definition, self._library)
        for attribute in op.attr:
            if attribute.name not in _FLOAT32_ATTRIBUTES.get(node.op, ()):
                _replace_types(definition.attr[attribute.name], attribute)
        functions = [name for name in called_functions(definition) if name in self._library]
        if functions:
            rename_calls(definition, {name: self._convert_function(name) for name in functions})
            return definition
        return definition if has_xla_kernel(definition) else node.definition

    def _convert_function(self, name: str) -> str:
        """Return the name of a function's bfloat16 copy; add the copy to the library if needed."""
        converted = f"{name}{_SUFFIX}"
        if converted not in self._library:
            function = self._library[name]
            body = graph_ir.from_function_def(function, self._library)
            arguments = {
                argument: _in_bfloat16(dtype) for argument, dtype in body.arguments.items()
            }
            results = [_in_bfloat16(result.type) for result in function.signature.output_arg]
            graph = _Caster(body, self._library, self._keep).convert(arguments, results)
            self._library[converted] = graph_ir.to_function_def(graph, converted, self._library)
        return converted

    def _cast(self, value: Value, dtype: int) -> Value:
        """Return a node output in the type that a consumer needs; add a Cast node if required."""
        if self._types.get(value, dtype) == dtype or dtype not in (_FLOAT32, _BFLOAT16):
            return value
        if value not in self._casts:
            name = graph_ir.unused_name(
                f"{value.producer}/cast_{value.output_index}", {**self._nodes, **self._graph.nodes}
            )
            self._nodes[name] = Node(name, _define_cast(self._types[value], dtype), [value])
            self._casts[value] = Value(name)
            self._types[Value(name)] = dtype
        return self._casts[value]


def _in_bfloat16(dtype: int) -> int:
    return _BFLOAT16 if dtype == _FLOAT32 else dtype


def _replace_types(value: Any, attribute: "OpDef.AttrDef") -> None:
    """Replace float32 by bfloat16 in an attribute of a node, if the op allows bfloat16 there."""
    allowed = attribute.allowed_values.list.type
    if allowed and _BFLOAT16 not in allowed:
        return
    if attribute.type == "type" and value.type == _FLOAT32:
        value.type = _BFLOAT16
    elif attribute.type == "list(type)":
        value.list.type[:] = [_in_bfloat16(dtype) for dtype in value.list.type]


def _list_types(arguments: Iterable[Any], node: "NodeDef") -> list[int]:
    """Return the DataType of each input of a NodeDef; `arguments` are the OpDef's input_args."""
    types: list[int] = []
    for argument in arguments:
        if argument.type_list_attr:
            types += node.attr[argument.type_list_attr].list.type
        else:
            dtype = node.attr[argument.type_attr].type if argument.type_attr else argument.type
            types += [dtype] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
    return types


def _define_cast(source: int, target: int) -> "NodeDef":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    definition = NodeDef(op="Cast")
    definition.attr["SrcT"].type = source
    definition.attr["DstT"].type = target
    definition.attr["Truncate"].b = False
    return definition
