"""Copies the TPU nodes of a signature into a separate graph."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.export.conversion.analysis.shapes import SignatureShapes
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library

Counts = Mapping[Value, Sequence[int | None]]


def find_row_counts(
    values: Iterable[Value],
    types: Mapping[Value, int],
    shapes: SignatureShapes,
) -> Counts:
    """Find the integer tensors of which each element is a constant or the batch size.

    The TPU can compute such a tensor itself, instead of receiving it from the host.

    Args:
      types: Node output → DataType.
    """
    values = list(values)
    counts = {}
    for value in values:
        if types.get(value) in dtypes.WHOLE_NUMBERS:
            elements = shapes.row_counts(value)
            if elements is not None:
                counts[value] = elements
    has_source = any(value not in counts and shapes.has_rows(value) for value in values)
    return {value: counts[value] for value in counts if has_source or None not in counts[value]}


def make_nodes(
    counted: Counts,
    values: Sequence[Value],
    arguments: Mapping[Value, Value],
    types: Mapping[Value, int],
    shapes: SignatureShapes,
    taken: Collection[str],
) -> tuple[list[Node], dict[Value, Value]]:
    """Build the nodes by which the TPU computes the tensors that `find_row_counts` found."""
    names = set(taken)
    nodes: list[Node] = []

    def add(op: str, inputs: Sequence[Value], **attributes: Any) -> Value:
        name = graph_ir.unused_name(f"rows/{op}", names)
        names.add(name)
        nodes.append(Node(name, _definition(op, attributes), list(inputs)))
        return Value(name)

    def constant(array: Any) -> Value:
        proto = tf.make_tensor_proto(array)
        return add("Const", (), dtype=proto.dtype, value=proto)

    source = next((value for value in values if shapes.has_rows(value)), None)
    replaced: dict[Value, Value] = {}
    for value, elements in counted.items():
        dtype = tf.as_dtype(types[value])
        is_vector = bool(shapes.first.shape(value))
        if None not in elements:
            array = np.asarray(elements, dtype.as_numpy_dtype)
            replaced[value] = constant(array if is_vector else array.reshape(()))
            continue
        assert source is not None
        sizes = add("Shape", [arguments[source]], T=types[source], out_type=dtype)
        ends = [constant(np.asarray([end], np.int32)) for end in (0, 1, 1)]
        rows = add(
            "StridedSlice", [sizes, *ends], T=dtype, Index=tf.int32, shrink_axis_mask=1,
            begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0,
        )  # fmt: skip
        if is_vector:
            parts = [
                rows if size is None else constant(np.asarray(size, dtype.as_numpy_dtype))
                for size in elements
            ]
            rows = add("Pack", parts, T=dtype, N=len(parts), axis=0)
        replaced[value] = rows
    return nodes, replaced


def _definition(op: str, attributes: Mapping[str, Any]) -> Any:
    definition = NodeDef(op=op)
    for name, value in attributes.items():
        if isinstance(value, tf.DType) or name in ("T", "dtype", "out_type", "Index"):
            definition.attr[name].type = tf.as_dtype(value).as_datatype_enum
        elif name == "value":
            definition.attr[name].tensor.CopyFrom(value)
        else:
            definition.attr[name].i = value
    return definition


# Types of the ops that compute shapes. If host and TPU both need a shape, the host runs these ops
# too, so that it need not wait for a result of the TPU.
_SHAPE_OPS = frozenset(
    re.findall(
        r"\w+",
        """
    Add AddV2 Cast ConcatV2 ExpandDims Fill FloorDiv GatherV2 Identity Maximum Minimum Mul Pack Prod
    Range Rank Reshape Shape ShapeN Size Slice Squeeze StridedSlice Sub Unpack
        """,
    )
)
_MOST_REPEATED = 32


@dataclass(frozen=True)
class TpuPart:
    """One TPU computation: nodes of a signature that run on the TPU, as a graph of their own.

    Attributes:
      arguments: The node outputs that the TPU takes from the host. Handles of variables come last.
      controls: Names of the nodes on the host that must run before the TPU.
    """

    body: GraphIR
    arguments: Sequence[Value]
    num_handles: int
    results: Sequence[Value]
    controls: Sequence[str]


def extract_part(
    graph: GraphIR,
    tpu_nodes: Collection[str],
    names: Collection[str],
    free: Collection[str],
    fed: Collection[Value],
    fetches: Iterable[Value],
    library: "Library",
    shapes: SignatureShapes,
) -> TpuPart:
    """Copy the nodes for the TPU, with the constants and the reads of variables that they use."""
    types = graph_ir.value_types(graph, library)
    inside: dict[str, Node] = {}
    pending = [name for name in graph.nodes if name in tpu_nodes]
    outer: dict[Value, None] = {}
    while pending:
        name = pending.pop()
        if name in inside:
            continue
        node = inside[name] = graph.nodes[name]
        for value in node.inputs:
            producer = graph.nodes.get(value.producer)
            if value in fed or producer is None:
                outer[value] = None
            elif value.producer in free and producer.op not in ("VarHandleOp", "Identity"):
                pending.append(value.producer)
            elif value.producer not in tpu_nodes:
                outer[_find_handle(value, graph)] = None
    by_host = _used_by_host(graph, tpu_nodes, names, free)
    by_host |= dict.fromkeys(value for value in fetches if value not in fed)
    repeated = {
        value for value in by_host if _is_shape(value, graph, tpu_nodes, free, fed, types)
    } - set(fetches)
    results = [
        value
        for value in by_host
        if value.producer in tpu_nodes and value not in fed and value not in repeated
    ]
    handles = sorted(value for value in outer if types.get(value) == dtypes.RESOURCE)
    values = sorted(outer.keys() - handles)
    counted = find_row_counts(values, types, shapes)
    values = [value for value in values if value not in counted]
    arguments = {
        value: Value(graph_ir.unused_name(f"argument_{number}", inside))
        for number, value in enumerate([*values, *handles])
    }
    counting, replaced = make_nodes(counted, values, arguments, types, shapes, inside)
    for node in counting:
        inside[node.name] = node

    def inner(value: Value) -> Value:
        handle = _find_handle(value, graph) if types.get(value) == dtypes.RESOURCE else value
        return replaced.get(value) or arguments.get(handle, value)

    body = GraphIR(
        graph_ir.topological_order(
            Node(
                node.name,
                node.definition,
                node.inputs if node in counting else [inner(value) for value in node.inputs],
                [name for name in node.controls if name in inside],
            )
            for node in inside.values()
        ),
        {argument.producer: types[value] for value, argument in arguments.items()},
        results=list(results),
    )
    awaited = {control for node in inside.values() for control in node.controls} - inside.keys()
    return TpuPart(body, [*values, *handles], len(handles), results, sorted(awaited))


def _find_handle(value: Value, graph: GraphIR) -> Value:
    """Follow Identity nodes back from a variable's handle to the output of its VarHandleOp."""
    start, node = value, graph.nodes.get(value.producer)
    while node is not None and node.op == "Identity":
        value = node.inputs[0]
        node = graph.nodes.get(value.producer)
    return value if node is not None and node.op == "VarHandleOp" else start


def _used_by_host(
    graph: GraphIR, tpu_nodes: Collection[str], names: Collection[str], free: Collection[str]
) -> dict[Value, None]:
    return {
        value: None
        for name in graph.nodes
        if name in names and name not in tpu_nodes and name not in free
        for value in graph.nodes[name].inputs
    }


def _is_shape(
    value: Value,
    graph: GraphIR,
    tpu_nodes: Collection[str],
    free: Collection[str],
    fed: Collection[Value],
    types: Mapping[Value, int],
) -> bool:
    """Return whether an output of a node on the TPU is a shape that the host can compute too."""
    visited: set[str] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        name = current.producer
        if current in fed or name in free or name not in tpu_nodes or name in visited:
            continue
        visited.add(name)
        node = graph.nodes[name]
        if (
            node.op not in _SHAPE_OPS
            or types[current] not in dtypes.WHOLE_NUMBERS
            or len(visited) > _MOST_REPEATED
        ):
            return False
        pending.extend(node.inputs)
    return True
