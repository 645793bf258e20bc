"""Lets the TPU compute batch sizes that it would otherwise receive from the host as tensors.

A model often reshapes to [batch size, ...]. It can take the batch size from the shape of an input
that only the host sees, such as strings.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.export.conversion.analysis.shapes import SignatureShapes
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.saved_model import dtypes

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
