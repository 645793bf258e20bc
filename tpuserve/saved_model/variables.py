"""The variables that a graph declares."""

from collections.abc import Iterable
from dataclasses import dataclass

from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import dtypes

_VARIABLE_OPS = frozenset({"VarHandleOp", "VariableV2", "Variable"})

# Of one element in memory; a string has no size of its own.
_BYTES_OF_TYPE = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}
_MOST_BYTES = 2**63 - 1


@dataclass(frozen=True)
class DeclaredVariable:
    """A variable as the graph declares it.

    Attributes:
      name: the name it is shared by, which is its name in a checkpoint of TensorFlow's version 1.
      dtype: TensorFlow's name of the element type.
      shape: None per unknown dimension; None as a whole where the rank is unknown.
      bytes: of its value; None where the type or shape leave it open.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    bytes: int | None


def declared_variables(nodes: Iterable[pb.NodeDef]) -> tuple[DeclaredVariable, ...]:
    """The variables that nodes declare, each once, by name."""
    found = {each.name: each for each in map(_variable, nodes) if each is not None}
    return tuple(found[name] for name in sorted(found))


def shape_from_proto(proto: pb.TensorShapeProto) -> tuple[int | None, ...] | None:
    """A shape with None per unknown dimension; None where the rank is unknown."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


def _variable(node: pb.NodeDef) -> DeclaredVariable | None:
    if node.op not in _VARIABLE_OPS:
        return None
    # A handle may be shared under another name than its node's, and is saved under that.
    shared_name = node.attr["shared_name"].s.decode(errors="backslashreplace")
    number = node.attr["dtype"].type
    shape = shape_from_proto(node.attr["shape"].shape)
    return DeclaredVariable(
        name=(shared_name if node.op == "VarHandleOp" else "") or node.name,
        dtype=dtypes.dtype_name(number),
        shape=shape,
        bytes=_bytes(number, shape),
    )


def _bytes(number: int, shape: tuple[int | None, ...] | None) -> int | None:
    if shape is None or number not in _BYTES_OF_TYPE:
        return None
    if 0 in shape:
        return 0
    total = _BYTES_OF_TYPE[number]
    for size in shape:
        if size is None:
            return None
        total *= size
        if total > _MOST_BYTES:
            return None
    return total
