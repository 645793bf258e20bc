"""Replaces ops, in the graph for shape inference, by ops of which TensorFlow infers more.

The replaced graph never runs: only the shapes of its node outputs are right.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.saved_model import dtypes

_TABLES = ("HashTableV2", "MutableHashTableV2")
_NUMBERS = ("N", "end_mask", "num_buckets")


def replace_node(node: Node, nodes: Mapping[str, Node]) -> list[Node]:
    """Return the nodes that replace a node in the graph for shape inference.

    Returns:
      The nodes, of which one has the name of the replaced node; only the node itself if TensorFlow
      infers its shape.
    """
    if node.op == "LookupTableFindV2":
        return _replace_lookup(node, nodes)
    if node.op == "RaggedTensorToTensor":
        return _replace_padding(node, nodes)
    return [node]


def _replace_lookup(node: Node, nodes: Mapping[str, Node]) -> list[Node]:
    """Replace a lookup in a table by elementwise ops on the keys."""
    table = nodes.get(node.inputs[0].producer)
    if table is None or table.op not in _TABLES:
        return [node]
    key, value = (node.definition.attr[name].type for name in ("Tin", "Tout"))
    numbers = f"{node.name}/numbers"
    inputs = [node.inputs[1]]
    added: list[Node] = []
    if key == dtypes.STRING:
        hashed = _define("StringToHashBucketFast", num_buckets=2)
        added.append(Node(numbers, hashed, inputs))
        inputs, key = [Value(numbers)], tf.int64.as_datatype_enum
    if value == dtypes.STRING:
        result = _define("AsString", T=key)
    else:
        result = _define("Cast", SrcT=key, DstT=value)
    return [*added, Node(node.name, result, inputs)]


def _replace_padding(node: Node, nodes: Mapping[str, Node]) -> list[Node]:
    """Reshape the padded words of texts to [number of texts, ...]."""
    texts = _find_split_texts(node, nodes)
    if texts is None:
        return [node]
    padded = dataclasses.replace(node, name=f"{node.name}/padded")
    added = [padded]

    def add(op: str, *inputs: Value, **attributes: int) -> Value:
        name = f"{node.name}/{op}_{len(added)}"
        added.append(Node(name, _define(op, **attributes), list(inputs)))
        return Value(name)

    def constant(value: Any) -> Value:
        output = add("Const", dtype=tf.int32.as_datatype_enum)
        tensor = tf.make_tensor_proto(value, tf.int32)
        added[-1].definition.attr["value"].tensor.CopyFrom(tensor)
        return output

    number, text = tf.int32.as_datatype_enum, dtypes.STRING
    dtype = node.definition.attr["T"].type
    rows = add("Shape", texts, T=text, out_type=number)
    sizes = add("Shape", Value(padded.name), T=dtype, out_type=number)
    slicing = [constant([size]) for size in (1, 0, 1)]
    others = add("StridedSlice", sizes, *slicing, T=number, Index=number, end_mask=1)
    shape = add("ConcatV2", rows, others, constant(0), T=number, Tidx=number, N=2)
    reshape = _define("Reshape", T=dtype, Tshape=number)
    return [*added, Node(node.name, reshape, [Value(padded.name), shape])]


def _find_split_texts(node: Node, nodes: Mapping[str, Node]) -> Value | None:
    """Return the texts, [rows], whose words a RaggedTensorToTensor pads; None for other inputs."""
    kinds = node.definition.attr["row_partition_types"].list.s
    if not kinds or kinds[0] != b"FIRST_DIM_SIZE":
        return None
    # The number of rows is the first element of the shape that StringSplitV2 returns.
    count = nodes.get(node.inputs[3].producer)
    while count is not None and count.op in ("Cast", "Identity"):
        count = nodes.get(count.inputs[0].producer)
    if count is None or count.op != "StridedSlice" or not _takes_first(count, nodes):
        return None
    source = count.inputs[0]
    split = nodes.get(source.producer)
    if split is None or split.op != "StringSplitV2" or source.output_index != 2:
        return None
    return split.inputs[0]


def _takes_first(node: Node, nodes: Mapping[str, Node]) -> bool:
    begin = nodes.get(node.inputs[1].producer)
    if begin is None or begin.op != "Const" or not node.definition.attr["shrink_axis_mask"].i:
        return False
    elements = tf.make_ndarray(begin.definition.attr["value"].tensor).ravel().tolist()
    return bool(elements == [0])


def _define(op: str, **attributes: int) -> Any:
    """Return a NodeDef whose attributes are whole numbers (see `_NUMBERS`) or DataTypes."""
    definition = NodeDef(op=op)
    for name, number in attributes.items():
        if name in _NUMBERS:
            definition.attr[name].i = number
        else:
            definition.attr[name].type = number
    return definition
