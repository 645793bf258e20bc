"""Finds computations with a static cost: their run time depends only on the shapes of the inputs.

If such a computation has once met the deadline of a request, later runs for inputs of the same
shapes meet it too.
"""

import re
from collections.abc import Iterable
from typing import Any

from tpuserve.graph.references import node_name

_STATIC_COST_OPS = frozenset(
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
    """Return whether the time to compute some tensors depends only on the shapes of the inputs.

    Args:
      fetches: names of the tensors, such as "y:0".
    """
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    pending = [node_name(fetch) for fetch in fetches]
    visited: set[str] = set()
    called: set[str] = set()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        node = nodes.get(name)
        if node is None or node.op not in _STATIC_COST_OPS:
            return False
        called.update(_called_function(node))
        pending.extend(node_name(reference) for reference in node.input)
    return _have_static_cost(called, functions)


def _have_static_cost(names: set[str], functions: dict[str, Any]) -> bool:
    pending, entered = list(names), set(names)
    while pending:
        function = functions.get(pending.pop())
        if function is None:
            return False
        for node in function.node_def:
            if node.op not in _STATIC_COST_OPS:
                return False
            for name in _called_function(node):
                if name not in entered:
                    entered.add(name)
                    pending.append(name)
    return True


def _called_function(node: Any) -> list[str]:
    if "f" in node.attr and node.attr["f"].WhichOneof("value") == "func":
        return [node.attr["f"].func.name]
    return []
