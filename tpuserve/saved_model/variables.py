"""Finds the variables that the nodes of a graph declare, with their dtypes and shapes."""

from collections.abc import Iterable
from dataclasses import dataclass

from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import dtypes

_VARIABLE_OPS = frozenset({"VarHandleOp", "VariableV2", "Variable"})

# Number of the dtype in tensorflow.DataType → size of an element in bytes. Strings are missing,
# because they have no fixed size.
ELEMENT_BYTES = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}
_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True)
class DeclaredVariable:
    """A variable that a graph declares by a node such as VarHandleOp.

    Attributes:
      name: the shared_name attribute of the node, under which TensorFlow 1 saves the variable in a
        checkpoint; the name of the node if this attribute is empty.
      shape: the size of each dimension, None for an unknown size; None if the rank is unknown.
      bytes: the size of the value in bytes; None if it is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    bytes: int | None


def declared_variables(nodes: Iterable[pb.NodeDef]) -> tuple[DeclaredVariable, ...]:
    """Return the variables that nodes declare, without duplicates, sorted by name."""
    declared = (_variable(node) for node in nodes)
    by_name = {variable.name: variable for variable in declared if variable is not None}
    return tuple(by_name[name] for name in sorted(by_name))


def shape_from_proto(proto: pb.TensorShapeProto) -> tuple[int | None, ...] | None:
    """Return a shape with None for each unknown size, or None if the rank is unknown."""
    if proto.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in proto.dim)


def _variable(node: pb.NodeDef) -> DeclaredVariable | None:
    if node.op not in _VARIABLE_OPS:
        return None
    # Prefer the shared name of a resource variable to the name of its node: TensorFlow 1 saves the
    # variable in checkpoints under the shared name.
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
    if shape is None or number not in ELEMENT_BYTES:
        return None
    if 0 in shape:
        return 0
    total = ELEMENT_BYTES[number]
    for size in shape:
        if size is None:
            return None
        total *= size
        if total > _MAX_BYTES:
            return None
    return total
