"""Infers the shapes of all node outputs of a signature with TensorFlow's shape inference."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpuserve.errors import UnsupportedModel
from tpuserve.export.conversion.analysis import constants
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.saved_model import dtypes
from tpuserve.tensorflow_internals import constant_value

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


Shape = tuple[int | None, ...] | None

ROWS, OTHER_ROWS = 3, 5
"""Two batch sizes. A size that is inferred as 3 for the first and 5 for the second is the batch."""

OPEN_SIZES = (64, 224, 16, 8, 1)
"""Sizes to assume for the unknown dimensions of a signature's inputs other than the batch."""


@dataclasses.dataclass(frozen=True)
class Inference:
    """The shapes of the node outputs of a signature, inferred for one batch size.

    Attributes:
      feeds: Input of the signature → its placeholder in that tf.Graph.
      saved_shapes: Node output → the shape in the node's attribute `_output_shapes` in the
        SavedModel. It can have known sizes where the inferred shape has none.
    """

    find: Callable[[Value], Any]
    feeds: Mapping[Value, Any]
    saved_shapes: Mapping[Value, Any]

    def shape(self, value: Value) -> Shape:
        """Return the inferred shape of a node output; None if its rank is unknown."""
        shape = self._tensor(value).shape
        if value in self.saved_shapes and shape.is_compatible_with(self.saved_shapes[value]):
            shape = shape.merge_with(self.saved_shapes[value])
        return None if shape.rank is None else tuple(shape.as_list())

    def constant(self, value: Value) -> Any:
        """Return the value of a node output as an array, if it follows from shapes and constants.

        Returns:
          None if the value depends on the values of inputs or variables.
        """
        with self._tensor(value).graph.as_default():
            try:
                return constant_value(self._tensor(value))
            except (TypeError, ValueError, NotImplementedError):
                return None

    def _tensor(self, value: Value) -> Any:
        return self.feeds[value] if value in self.feeds else self.find(value)


@dataclasses.dataclass(frozen=True)
class SignatureShapes:
    """The shapes of a signature's node outputs, for two batch sizes and an unknown batch size.

    A dimension is taken as the batch if its size is `ROWS` in `first` and `OTHER_ROWS` in `second`.
    """

    first: Inference
    second: Inference
    unbound: Inference

    def row_counts(self, value: Value) -> list[int | None] | None:
        """Return the elements of an integer tensor if each is a constant or the batch size.

        Returns:
          For each element its constant, or None for the batch size. None instead of a list if the
          elements depend on anything else, or if the tensor has more than one dimension.
        """
        arrays = [inference.constant(value) for inference in (self.first, self.second)]
        if any(array is None for array in arrays):
            return None
        before, after = (np.asarray(array) for array in arrays)
        if before.ndim > 1 or before.shape != after.shape or before.dtype.kind not in "iu":
            return None
        elements: list[int | None] = []
        for one, other in zip(before.ravel().tolist(), after.ravel().tolist(), strict=True):
            if one != other and (one, other) != (ROWS, OTHER_ROWS):
                return None
            elements.append(one if one == other else None)
        return elements

    def has_rows(self, value: Value) -> bool:
        """Return whether the first dimension of a node output is certainly the batch.

        It is not certain if the rank or the size of the dimension is unknown.
        """
        first, second = self.first.shape(value), self.second.shape(value)
        if not first or not second:
            return False
        return (first[0], second[0]) == (ROWS, OTHER_ROWS)


def infer_all(
    nodes: Mapping[str, Node], feeds: Mapping[Value, Any], library: Any
) -> SignatureShapes:
    """Infer the shapes of a signature's node outputs for two batch sizes and an unknown one.

    Args:
      feeds: Input of the signature, as a node output → its TensorInfo.
    """
    return SignatureShapes(
        *(infer(nodes, feeds, library, rows) for rows in (ROWS, OTHER_ROWS, None))
    )


def infer(
    nodes: Mapping[str, Node], feeds: Mapping[Value, Any], library: Any, rows: int | None
) -> Inference:
    """Infer the shapes of a signature's node outputs for one batch size.

    Args:
      nodes: Name → node, for all nodes that the signature needs.
      feeds: Input of the signature, as a node output → its TensorInfo.
      rows: The batch size to assume if the first dimension of an input is unknown. With None, no
        size is assumed for any unknown dimension of the inputs.

    Raises:
      UnsupportedModel: TensorFlow does not accept the graph.
    """
    graph_def = GraphDef()
    graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
    definitions = [node.definition for node in nodes.values()]
    graph_def.library.function.extend(constants.select_functions(definitions, library))
    replaced = {name: replace_node(node, nodes) for name, node in nodes.items()}
    graph_ir.append_node_defs(
        (_without_location(node) for nodes in replaced.values() for node in nodes), graph_def.node
    )
    saved = {
        Value(name, index): tf.TensorShape(shape)
        for name, node in nodes.items()
        if "_output_shapes" in node.definition.attr
        for index, shape in enumerate(node.definition.attr["_output_shapes"].list.shape)
    }
    failure: Exception | None = None
    for size in (None,) if rows is None else (*OPEN_SIZES, None):
        try:
            return _import(graph_def, nodes, feeds, saved, rows, size)
        except ValueError as error:
            failure = error
    raise UnsupportedModel(
        f"TensorFlow does not accept the graph: {failure}. Export the model again with the "
        f"installed TensorFlow."
    ) from failure


def _import(
    graph_def: Any,
    nodes: Mapping[str, Node],
    feeds: Mapping[Value, Any],
    saved: Mapping[Value, Any],
    rows: int | None,
    size: int | None,
) -> Inference:
    graph = tf.Graph()
    with graph.as_default():
        placeholders = {
            value: tf.compat.v1.placeholder(info.dtype, _close_shape(info.tensor_shape, rows, size))
            for value, info in feeds.items()
        }
        used = {value for node in nodes.values() for value in node.inputs}
        input_map = {
            graph_ir.format_value(value): tensor
            for value, tensor in placeholders.items()
            if value in used
        }
        tf.import_graph_def(graph_def, input_map=input_map, name="flat")

    def find(value: Value) -> Any:
        return graph.get_operation_by_name(f"flat/{value.producer}").outputs[value.output_index]

    return Inference(find, placeholders, saved)


def _close_shape(shape: Any, rows: int | None, size: int | None) -> list[int | None] | None:
    if shape.unknown_rank:
        return None
    return [
        (rows if axis == 0 else size) if dim.size < 0 else dim.size
        for axis, dim in enumerate(shape.dim)
    ]


def _without_location(node: Node) -> Node:
    """Return a copy of a node that can be imported into another graph for shape inference."""
    definition = type(node.definition)()
    definition.CopyFrom(constants.clear_constant(node.definition))
    definition.device = ""
    definition.attr.pop("_class", None)
    definition.attr.pop("_output_shapes", None)
    return dataclasses.replace(node, definition=definition)
