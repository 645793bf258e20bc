"""Computations whose work depends on nothing but the shapes of their inputs.

One that has run in a short time will take about as long on inputs of the same shapes, so it needs
no watching. Loops, queues, strings and whatever makes a tensor as large as an input or a variable
says are not among them; neither is what is not known here.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_OPS = frozenset(
    re.findall(
        r"\w+",
        """
    Abs Add AddN AddV2 All Any ArgMax ArgMin AvgPool BatchMatMul BatchMatMulV2 BatchMatMulV3
    BiasAdd Cast Ceil ClipByValue ConcatV2 Const Conv2D Cos Cumsum DepthToSpace
    DepthwiseConv2dNative DivNoNan Einsum Elu EnsureShape Equal Erf Exp ExpandDims Expm1 Floor
    FloorDiv FloorMod FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 Gather GatherNd GatherV2
    Greater GreaterEqual Identity IdentityN IsFinite IsInf IsNan L2Loss LeakyRelu Less LessEqual
    Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul Max MaxPool Maximum Mean Min
    Minimum Mul Neg NoOp NotEqual OnesLike Pack PartitionedCall Placeholder PlaceholderWithDefault
    Pow Prod Rank ReadVariableOp RealDiv Reciprocal Relu Relu6 Reshape ResourceGather ReverseV2
    Round Rsqrt Select SelectV2 Selu Shape ShapeN Sigmoid Sign Sin Size Slice Softmax Softplus
    Softsign SpaceToDepth Split SplitV Sqrt Square SquaredDifference Squeeze
    StatefulPartitionedCall StopGradient StridedSlice Sub Sum Tanh TopKV2 Transpose Unpack
    VarHandleOp VariableV2 ZerosLike
        """,
    )
)
# Op → which of its inputs say how large its output is.
_SIZES = {
    "BatchToSpaceND": (1, 2),
    "BroadcastTo": (1,),
    "Conv2DBackpropInput": (0,),
    "Fill": (0,),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Range": (0, 1, 2),
    "ResizeBilinear": (1,),
    "ResizeNearestNeighbor": (1,),
    "SpaceToBatchND": (1, 2),
    "Tile": (1,),
}
# They give the same for all inputs of the same shapes.
_OF_SHAPES = frozenset(["Const", "Rank", "Shape", "ShapeN", "Size"])
# They give what no shape says, or may.
_GIVEN = frozenset(
    [
        "PartitionedCall",
        "Placeholder",
        "PlaceholderWithDefault",
        "ReadVariableOp",
        "ResourceGather",
        "StatefulPartitionedCall",
        "VarHandleOp",
        "VariableV2",
    ]
)


def is_bounded(graph: Any, fetches: Iterable[str]) -> bool:
    """Whether the work for some tensors of a graph depends on the inputs' shapes alone.

    Args:
      graph: a GraphDef message.
      fetches: the tensors, "y:0".
    """
    nodes = {node.name: node for node in graph.node}
    functions = {each.signature.name: each for each in graph.library.function}
    pending = [_node_name(each) for each in fetches]
    seen: set[str] = set()
    called: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        node = nodes.get(name)
        if node is None or not _is_known(node, nodes, called):
            return False
        pending.extend(_node_name(each) for each in node.input)
    return _are_bounded(called, functions)


def _are_bounded(called: set[str], functions: dict[str, Any]) -> bool:
    pending, seen = list(called), set(called)
    while pending:
        function = functions.get(pending.pop())
        if function is None:
            return False
        inner: set[str] = set()
        nodes = {node.name: node for node in function.node_def}
        if not all(_is_known(node, nodes, inner) for node in function.node_def):
            return False
        pending.extend(inner - seen)
        seen |= inner
    return True


def _is_known(node: Any, nodes: Mapping[str, Any], called: set[str]) -> bool:
    """Whether a node's op is one of those; what it calls is added to `called`."""
    if "f" in node.attr and node.attr["f"].WhichOneof("value") == "func":
        called.add(node.attr["f"].func.name)
    if node.op in _SIZES:
        return all(
            place < len(node.input) and _is_of_shapes(node.input[place], nodes)
            for place in _SIZES[node.op]
        )
    return node.op in _OPS


def _is_of_shapes(tensor: str, nodes: Mapping[str, Any]) -> bool:
    """Whether a tensor is the same for all inputs of the same shapes."""
    pending, seen = [_node_name(tensor)], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        node = nodes.get(name)
        if node is None or node.op in _GIVEN or node.op not in _OPS | _SIZES.keys():
            return False
        if node.op not in _OF_SHAPES:
            pending.extend(_node_name(each) for each in node.input)
    return True


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
