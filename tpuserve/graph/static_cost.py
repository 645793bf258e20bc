"""Computations whose work depends on nothing but the shapes of their inputs.

One that has run in a short time will take about as long on inputs of the same shapes, so it needs
no watching. Loops, queues, strings and whatever makes a tensor as large as a number says are not
among them; neither is what is not known here.
"""

import re
from collections.abc import Iterable
from typing import Any

_OPS = frozenset(
    re.findall(
        r"\w+",
        """
    Abs Add AddN AddV2 All Any ArgMax ArgMin AvgPool BatchMatMul BatchMatMulV2 BatchMatMulV3
    BiasAdd Cast Ceil ConcatV2 Const Conv2D DepthwiseConv2dNative DivNoNan Einsum Elu EnsureShape
    Equal Erf Exp ExpandDims Expm1 Floor FloorDiv FloorMod FusedBatchNorm FusedBatchNormV2
    FusedBatchNormV3 Gather GatherNd GatherV2 Greater GreaterEqual Identity IdentityN L2Loss
    LeakyRelu Less LessEqual Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul Max
    MaxPool Maximum Mean Min Minimum Mul Neg NoOp NotEqual OnesLike Pack PartitionedCall
    Placeholder PlaceholderWithDefault Pow Prod Rank ReadVariableOp RealDiv Reciprocal Relu Relu6
    Reshape ResourceGather Round Rsqrt Select SelectV2 Selu Shape ShapeN Sigmoid Sign Size Softmax
    Softplus Softsign Split SplitV Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall
    StopGradient StridedSlice Sub Sum Tanh TopKV2 Transpose Unpack VarHandleOp VariableV2 ZerosLike
        """,
    )
)


def has_static_cost(graph: Any, fetches: Iterable[str]) -> bool:
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
        if node is None or not _is_known(node, called):
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
        if not all(_is_known(node, inner) for node in function.node_def):
            return False
        pending.extend(inner - seen)
        seen |= inner
    return True


def _is_known(node: Any, called: set[str]) -> bool:
    """Whether a node's op is one of those; what it calls is added to `called`."""
    if "f" in node.attr and node.attr["f"].WhichOneof("value") == "func":
        called.add(node.attr["f"].func.name)
    return node.op in _OPS


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]
