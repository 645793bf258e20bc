"""Infers the output shapes of ops, to find ops of untrusted models that allocate much memory.

Each op type has a rule: a function that takes the node and the known properties of its inputs. A
rule returns the shape of the output, or None if the shape cannot be inferred.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tpuserve.graph.attributes import attribute_value
from tpuserve.saved_model.variables import shape_from_proto
from tpuserve.untrusted.tensor_values import Shape, TensorValue

Rule: TypeAlias = Callable[[Any, Sequence[TensorValue]], Shape | None]


def _sizes_in(position: int) -> Rule:
    """Return the rule for ops, such as Fill, that take the shape of their output as an input.

    Args:
      position: the position of this input.
    """

    def rule(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
        return inputs[position].sizes

    return rule


def _count_in(position: int) -> Rule:
    """Return the rule for ops whose output is a vector, and that take its length as an input.

    Args:
      position: the position of this input.
    """

    def rule(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
        count = inputs[position].sizes
        return None if count is None or len(count) != 1 else count

    return rule


def _sizes_before(position: int, other: int) -> Rule:
    """Return the rule for ops whose output shape is put together from two inputs.

    An example is RandomGamma: the first dimensions of its output are the elements of the input
    "shape", and the remaining dimensions are the shape of the input "alpha".

    Args:
      position: the position of the input whose elements are the first dimensions of the output.
      other: the position of the input whose shape is the remaining dimensions.
    """

    def rule(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
        sizes, shape = inputs[position].sizes, inputs[other].shape
        return None if sizes is None or shape is None else (*sizes, *shape)

    return rule


def _attribute_shape(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    return shape_from_proto(attribute_value(node, "shape").shape)


def _reshape(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    sizes = inputs[1].sizes
    if sizes is None or -1 not in sizes:
        return sizes
    rest = math.prod(size for size in sizes if size is not None and size >= 0)
    shape = inputs[0].shape
    if shape is None or None in shape or not rest:
        return tuple(None if size == -1 else size for size in sizes)
    inferred = math.prod(size for size in shape if size is not None) // rest
    return tuple(inferred if size == -1 else size for size in sizes)


def _tile(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape, multiples = inputs[0].shape, inputs[1].sizes
    if multiples is None:
        return None
    shape = (1,) * len(multiples) if shape is None else shape
    return tuple(
        (1 if size is None else size) * (m or 0) for size, m in zip(shape, multiples, strict=True)
    )


def _pad(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape, padding = inputs[0].shape, inputs[1].sizes
    if padding is None:
        return None
    shape = (1,) * (len(padding) // 2) if shape is None else shape
    added = [(padding[i] or 0) + (padding[i + 1] or 0) for i in range(0, len(padding), 2)]
    return tuple(
        (1 if size is None else size) + more for size, more in zip(shape, added, strict=True)
    )


def _one_hot(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    indices, depth = inputs[0].shape, inputs[1].sizes
    # If the rank of the indices is unknown, assume a scalar, for which the output is smallest. The
    # result is a lower bound of the memory.
    return None if depth is None else (*(indices or ()), *depth)


def _range(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    start, limit, delta = (value.scalar for value in inputs[:3])
    if start is None or limit is None or not delta:
        return None
    count = (limit - start) / delta
    return (max(0, math.ceil(count)),) if math.isfinite(count) else None


def _matrix_diagonal(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape = inputs[0].shape
    if not shape:
        return None
    rows, columns = (
        value.scalar if value.scalar is not None and value.scalar >= 0 else shape[-1]
        for value in (*inputs[2:4], *[TensorValue()] * 2)[:2]
    )
    return (*shape[:-1], _whole(rows), _whole(columns))


def _diagonal(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape = inputs[0].shape
    return None if shape is None else (*shape, *shape)


def _resize(position: int) -> Rule:
    """Return the rule for ops that resize images to a height and width.

    Args:
      position: the position of the input that has the height and width.
    """

    def rule(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
        shape, size = inputs[0].shape, inputs[position].sizes
        if size is None or len(size) != 2:
            return None
        batch, channels = (shape[0], shape[3]) if shape and len(shape) == 4 else (1, 1)
        return (batch, *size, channels)

    return rule


def _stitch(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    indices = [value.content for value in inputs[: len(inputs) // 2] if value.content]
    return (1 + int(max(max(content) for content in indices)),) if indices else None


def _matrix_product(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    first, second = inputs[0].shape, inputs[1].shape
    if first is None or second is None or len(first) < 2 or len(second) < 2:
        return None
    rows = first[-1 if _flag(node, "transpose_a", "adj_x") else -2]
    columns = second[-2 if _flag(node, "transpose_b", "adj_y") else -1]
    batch = broadcast_shape([first[:-2], second[:-2]])
    return None if batch is None else (*batch, rows, columns)


def _einsum(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    labels, _, result = attribute_value(node, "equation").s.decode(errors="replace").partition("->")
    sizes: dict[str, int | None] = {}
    for names, value in zip(labels.split(","), inputs, strict=False):
        if value.shape is None or len(names) != len(value.shape) or "." in names:
            return None
        sizes.update(zip(names, value.shape, strict=True))
    return tuple(sizes.get(label) for label in result)


def _concat(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    is_first = node.op == "Concat"
    parts = inputs[1:] if is_first else inputs[:-1]
    axis = inputs[0 if is_first else -1].scalar
    shapes = [value.shape for value in parts if value.shape]
    if axis is None or not shapes or not -len(shapes[0]) <= axis < len(shapes[0]):
        return None
    position = int(axis) % len(shapes[0])
    total = sum((shape[position : position + 1] or (0,))[0] or 0 for shape in shapes)
    return (*shapes[0][:position], total, *shapes[0][position + 1 :])


def _pack(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape = inputs[0].shape
    if shape is None:
        return None
    position = attribute_value(node, "axis").i % (len(shape) + 1)
    return (*shape[:position], len(inputs), *shape[position:])


def _gather(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    parameters, indices = inputs[0].shape, inputs[1].shape
    axis = 0 if len(inputs) < 3 else inputs[2].scalar
    if not parameters or indices is None or axis is None or not 0 <= axis < len(parameters):
        return None
    return (*parameters[: int(axis)], *indices, *parameters[int(axis) + 1 :])


def _strided_slice(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape, specified = inputs[0].shape, inputs[1].shape
    if (
        shape is None
        or not specified
        or specified[0] is None
        or attribute_value(node, "ellipsis_mask").i
    ):
        return None
    remaining = list(shape)
    result: list[int | None] = []
    for position in range(min(specified[0], 2 * len(shape) + 2)):
        if _bit(node, "new_axis_mask", position):
            result.append(1)
        elif _bit(node, "shrink_axis_mask", position):
            remaining.pop(0)
        else:
            size = remaining.pop(0)
            is_whole = _bit(node, "begin_mask", position) and _bit(node, "end_mask", position)
            result.append(size if is_whole else None)
    return (*result, *remaining)


def _bit(node: Any, name: str, position: int) -> bool:
    return bool(attribute_value(node, name).i >> position & 1)


def _transpose(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape, order = inputs[0].shape, inputs[1].sizes
    if shape is None or order is None or len(shape) != len(order):
        return None
    return tuple(shape[axis] for axis in order if axis is not None)


def _expand(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape, axis = inputs[0].shape, inputs[1].scalar
    if shape is None or axis is None:
        return None
    position = int(axis) % (len(shape) + 1)
    return (*shape[:position], 1, *shape[position:])


def _squeeze(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    shape = inputs[0].shape
    return None if shape is None else tuple(size for size in shape if size != 1)


def broadcast(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    """Return the output shape of an elementwise op, whose inputs are broadcast to one shape."""
    shapes = [value.shape for value in inputs]
    known = [shape for shape in shapes if shape is not None]
    return broadcast_shape(known) if len(known) == len(shapes) else None


def broadcast_shape(shapes: Sequence[Shape]) -> Shape | None:
    """Return the common shape to which arrays are broadcast; None for an empty list of shapes."""
    if not shapes:
        return None
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(
        max((size for size in sizes if size is not None), default=None)
        for sizes in zip(*padded, strict=True)
    )


def _flag(node: Any, *names: str) -> bool:
    return any(attribute_value(node, name).b for name in names)


def _whole(size: float | None) -> int | None:
    return None if size is None else int(size)


def _same(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    return inputs[0].shape


def _rules(rule: Rule, ops: str) -> dict[str, Rule]:
    return dict.fromkeys(ops.split(), rule)


RULES: Mapping[str, Rule] = {
    **_rules(
        _sizes_in(0),
        """
    Fill Empty RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal
    ParameterizedTruncatedNormal StatelessRandomUniform StatelessRandomUniformV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformFullInt
    StatelessRandomUniformFullIntV2 StatelessRandomNormal StatelessRandomNormalV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2 StatelessRandomBinomial
    StatelessRandomPoisson StatelessRandomGammaV2 StatelessRandomGammaV3
    StatelessParameterizedTruncatedNormal NonDeterministicInts Conv2DBackpropInput
    RaggedTensorToTensor
        """,
    ),
    **_rules(_sizes_in(1), "BroadcastTo SparseToDense StatefulStandardNormal"),
    **_rules(
        _sizes_in(2),
        """
    ScatterNd StatefulUniform StatefulUniformInt StatefulUniformFullInt StatefulStandardNormalV2
    StatefulTruncatedNormal StatefulRandomBinomial
        """,
    ),
    **_rules(_sizes_before(0, 1), "RandomGamma RandomPoisson RandomPoissonV2"),
    **_rules(_count_in(0), "TensorArrayV2 TensorArrayV3"),
    **_rules(_count_in(1), "TensorListReserve TensorListResize Bincount DenseBincount Multinomial"),
    **_rules(_count_in(2), "LinSpace SparseBincount RaggedBincount"),
    **_rules(
        _count_in(2), "UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin"
    ),
    **_rules(_attribute_shape, "FakeParam Placeholder TemporaryVariable"),
    **_rules(
        _resize(1),
        "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor ScaleAndTranslate",
    ),
    **_rules(_resize(3), "CropAndResize"),
    **_rules(_matrix_diagonal, "MatrixDiag MatrixDiagV2 MatrixDiagV3 BatchMatrixDiag"),
    **_rules(_matrix_product, "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"),
    **_rules(_stitch, "DynamicStitch ParallelDynamicStitch"),
    **_rules(_pad, "Pad PadV2 MirrorPad"),
    **_rules(_concat, "Concat ConcatV2"),
    **_rules(_gather, "Gather GatherV2"),
    "Diag": _diagonal,
    "Einsum": _einsum,
    "ExpandDims": _expand,
    "OneHot": _one_hot,
    "Pack": _pack,
    "Range": _range,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "Tile": _tile,
    "Transpose": _transpose,
    **_rules(
        _same,
        """
    Abs Cast Ceil CheckNumerics Cos Cumprod Cumsum Enter EnsureShape Erf Exp Floor Identity
    Invert Log Log1p LogicalNot MatrixBandPart Neg OnesLike PlaceholderWithDefault
    PreventGradient Reciprocal Relu Reverse ReverseV2 Roll Round Rsqrt Sigmoid Sign Sin Snapshot
    Softmax Sqrt Square StopGradient Tanh ZerosLike
        """,
    ),
    **_rules(
        broadcast,
        """
    Add AddN AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan Equal FloorDiv FloorMod
    Greater GreaterEqual LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod Mul
    MulNoNan NotEqual Pow RealDiv RightShift SelectV2 SquaredDifference Sub TruncateDiv
    TruncateMod Xdivy Xlogy
        """,
    ),
}
# Type of an op that creates a list of tensors → the bytes of memory that each element of the list
# takes, even an element without a tensor.
OBJECT_BYTES: Mapping[str, int] = dict.fromkeys(
    ("TensorArrayV2", "TensorArrayV3", "TensorListReserve", "TensorListResize"), 64
)


def output_shape(node: Any, inputs: Sequence[TensorValue]) -> Shape | None:
    """Return the shape of the first output of a node; None if it is unknown.

    Args:
      node: a NodeDef; it can be damaged.
      inputs: the known properties of the node's inputs.
    """
    rule = RULES.get(node.op)
    if rule is None:
        return None
    try:
        return rule(node, inputs)
    except (IndexError, ValueError, OverflowError, TypeError):
        # The node is invalid: it has too few inputs, or inputs that contradict each other.
        # TensorFlow refuses such a node, so it allocates no memory.
        return None
