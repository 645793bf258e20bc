"""Computes the values of small tensors in a graph without running it.

Such tensors are often shapes or counts, which determine how much memory other tensors need.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, cycle, islice
from typing import Any

from tpuserve.graph.attributes import attribute_value
from tpuserve.untrusted.tensor_values import MAX_CONTENT, Content, Shape, TensorValue

_BINARY: Mapping[str, Callable[[float, float], float]] = {
    "Add": operator.add,
    "AddV2": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "RealDiv": operator.truediv,
    "Div": operator.floordiv,
    "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod,
    "Maximum": max,
    "Minimum": min,
    "Pow": math.pow,
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
    "Less": operator.lt,
    "LessEqual": operator.le,
    "NotEqual": operator.ne,
    "LeftShift": lambda value, count: value * 2 ** min(count, 64),
}
_UNARY: Mapping[str, Callable[[float], float]] = {
    "Abs": abs,
    "Ceil": math.ceil,
    "Exp": math.exp,
    "Floor": math.floor,
    "Log": math.log,
    "Neg": operator.neg,
    "Round": round,
    "Sqrt": math.sqrt,
    "Square": lambda value: value * value,
    "OnesLike": lambda value: 1,
    "ZerosLike": lambda value: 0,
}
_FORWARDING = frozenset(
    (
        *("EnsureShape", "Enter", "ExpandDims", "Identity", "PlaceholderWithDefault"),
        *("PreventGradient", "Reshape", "Snapshot", "Squeeze", "StopGradient"),
    )
)
_REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "Prod": math.prod,
    "Sum": sum,
    "Max": max,
    "Min": min,
}
# The largest absolute value that an element may have: the largest int64. The elements of a tensor
# with a larger element count as unknown: they cannot be a shape, because no dimension is so large.
_MAX = 2**63 - 1
# DataType numbers of float16, float32, float64 and bfloat16. A Cast op to any other dtype truncates
# the elements to integers.
_FLOATS = frozenset({1, 2, 14, 19})


def output_content(
    node: Any, inputs: Sequence[TensorValue], shape: Shape | None
) -> tuple[Shape | None, Content | None]:
    """Return the shape and the elements of the first output of a node, as far as they are known.

    Args:
      node: a NodeDef; it can be damaged.
      inputs: the known properties of the node's inputs.
      shape: the shape of the output; None if it is unknown.

    Returns:
      The shape, None if it is unknown; and the elements in row-major order, None if they are
      unknown or too many.
    """
    try:
        content = _content(node, inputs, shape)
    except (IndexError, ValueError, OverflowError, TypeError, ZeroDivisionError):
        return shape, None
    if content is None or len(content) > MAX_CONTENT or max(map(abs, content), default=0) > _MAX:
        return shape, None
    if shape is None or None in shape:
        is_vector = node.op in ("Shape", "StridedSlice", "Slice") and not _shrinks(node)
        shape = (len(content),) if is_vector else ()
    if math.prod(size or 0 for size in shape) != len(content):
        return shape, None
    return shape, content


def _content(node: Any, inputs: Sequence[TensorValue], shape: Shape | None) -> Content | None:
    op = node.op
    if op == "Shape":
        return _known_sizes(inputs[0].shape)
    if op == "Size":
        sizes = _known_sizes(inputs[0].shape)
        return None if sizes is None else (math.prod(sizes),)
    if op == "Rank":
        return None if inputs[0].shape is None else (len(inputs[0].shape),)
    contents = [value.content for value in inputs]
    if not contents or any(content is None for content in contents):
        return None
    known = [content for content in contents if content is not None]
    first = known[0]
    if op in _FORWARDING:
        return first
    if op == "Cast":
        is_float = attribute_value(node, "DstT").type in _FLOATS
        return first if is_float else tuple(map(int, first))
    if op in _UNARY:
        return tuple(map(_UNARY[op], first))
    if op in _BINARY:
        count = max(map(len, known))
        if any(len(content) not in (1, count) for content in known):
            return None
        left, right = (islice(cycle(content), count) for content in known)
        return tuple(map(_BINARY[op], left, right))
    if op == "SelectV2" and all(len(content) == 1 for content in known):
        return known[1] if first[0] else known[2]
    if op in _REDUCTIONS:
        return (_REDUCTIONS[op](first),) if len(inputs[0].shape or ()) < 2 else None
    if op == "Pack":
        return _joined(known) if all(len(content) == 1 for content in known) else None
    if op == "ConcatV2":
        return _joined(known[:-1]) if len(shape or ()) == 1 else None
    return _selection(node, known, shape)


def _joined(contents: Sequence[Content]) -> Content | None:
    """Join the elements of tensors in time that grows with their number; None if too many."""
    if sum(map(len, contents)) > MAX_CONTENT:
        return None
    return tuple(chain.from_iterable(contents))


def _selection(node: Any, known: Sequence[Content], shape: Shape | None) -> Content | None:
    """Compute the output of an op that selects, repeats or counts elements, such as Gather or Fill.

    Args:
      node: a NodeDef.
      known: the elements of each input in row-major order.
      shape: the shape of the output; None if it is unknown.

    Returns:
      The elements of the output; None if they are too many or the op is not of this kind.
    """
    first = known[0]
    if node.op == "Fill":
        count = math.prod(size or 0 for size in shape or ())
        return known[1] * count if count <= MAX_CONTENT else None
    if node.op == "Range":
        count = (shape or (MAX_CONTENT + 1,))[0] or 0
        start, _, delta = (content[0] for content in known)
        return tuple(start + delta * i for i in range(count)) if count <= MAX_CONTENT else None
    if node.op in ("Gather", "GatherV2"):
        return tuple(first[int(index)] for index in known[1])
    if node.op == "Slice" and len(known[1]) == 1:
        start, count = int(known[1][0]), int(known[2][0])
        return first[start:] if count == -1 else first[start : start + count]
    if node.op == "StridedSlice" and len(known[1]) == 1:
        start, stop, step = (int(content[0]) for content in known[1:4])
        if _shrinks(node):
            return (first[start],)
        if attribute_value(node, "new_axis_mask").i:
            return None
        return first[
            None if attribute_value(node, "begin_mask").i else start : None
            if attribute_value(node, "end_mask").i
            else stop : step
        ]
    return None


def _shrinks(node: Any) -> bool:
    """Return whether a node is a StridedSlice that takes one element of a vector as a scalar."""
    return node.op == "StridedSlice" and bool(attribute_value(node, "shrink_axis_mask").i)


def _known_sizes(shape: Shape | None) -> Content | None:
    if shape is None or None in shape:
        return None
    return tuple(size for size in shape if size is not None)
