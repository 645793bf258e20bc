"""A replicated body cut into units: computations that XLA compiles whole, and what lies between.

Between them lies what a TPU core does not do by itself: infeed and outfeed, collectives, the
parts that run on the host, and loops and branches that hold any of these, or that update
variables and go on with what differs. Such a node, and the plain read of a variable, is a unit of
its own. All else is gathered into three computations a level:

* once: what is the same on all replicas, and is wanted outside of a computation;
* replicated: what differs between replicas, run by each;
* writing: updates of variables, run once, with what replica 0 computed.

Levels make the cut: a node's is the least for which each of its needs is in an earlier unit, or
in its own. So units never wait for each other in a circle.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from tpuserve.graph.graph_walk import HOST_ATTRIBUTE
from tpuserve.lowering.ir import graph_ir as bodies
from tpuserve.lowering.ir import op_traits
from tpuserve.lowering.ir.graph_ir import Body, Node, Output, types_of
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_traits import Library


class Kind(IntEnum):
    """What a unit is; within a level units run in this order."""

    ALONE = 0
    ONCE = 1
    REPLICATED = 2
    WRITING = 3


@dataclass
class Unit:
    """Nodes that run as one.

    Attributes:
      kind: what they are.
      level: see the module.
      nodes: in order; a unit that is ALONE has one.
    """

    kind: Kind
    level: int
    nodes: list[Node] = field(default_factory=list)


def cut(
    body: Body, uniform: set[Output], library: "Library", together: Container[str] = ()
) -> list[Unit]:
    """The units of a body, each after those that it needs.

    Nodes named in `together` are of several kinds at once, so each of them stands alone.

    Constants are in none of them: each unit that uses one has it as its own.
    """
    units: dict[tuple[int, Kind], Unit] = {}
    alone: list[Unit] = []
    place: dict[str, tuple[int, Kind]] = {}
    for node in body.nodes.values():
        if node.definition.op == "Const":
            continue
        kind = Kind.ALONE if node.name in together else _kind(node, uniform, library)
        before = [place[each] for each in bodies.needs(node) if each in place]
        level = _least_level(kind, before)
        if kind is Kind.ONCE and _least_level(Kind.REPLICATED, before) < level:
            # Better repeated than waited for: what comes after it would be cut off from what
            # comes before, a gradient from its activations.
            kind = Kind.REPLICATED
            level = _least_level(kind, before)
        place[node.name] = (level, kind)
        if kind is Kind.ALONE:
            alone.append(Unit(kind, level, [node]))
        else:
            units.setdefault((level, kind), Unit(kind, level)).nodes.append(node)
    return sorted([*alone, *units.values()], key=lambda each: (each.level, each.kind))


def _least_level(kind: Kind, before: "Iterable[tuple[int, Kind]]") -> int:
    return max((level + (other > kind) for level, other in before), default=0)


def _kind(node: Node, uniform: set[Output], library: "Library") -> Kind:
    definition = node.definition
    if (
        op_traits.is_coupled(definition, library)
        or definition.op in ("NoOp", "ReadVariableOp", "VarHandleOp")
        or _hands_on_a_handle(node, library)
    ):
        return Kind.ALONE
    if op_traits.writes_variable(definition, library):
        return Kind.WRITING
    is_uniform = all(each in uniform for each in node.inputs) and not op_traits.draws(
        definition, library
    )
    return Kind.ONCE if is_uniform else Kind.REPLICATED


def _hands_on_a_handle(node: Node, library: "Library") -> bool:
    return node.definition.op in ("Identity", "IdentityN", "Switch", "Merge") and any(
        op_traits.is_handle(each) for _, each in op_traits.outputs_of(node.definition, library)
    )


def is_on_host(node: Node) -> bool:
    """Whether a node belongs to an outside compilation."""
    return HOST_ATTRIBUTE in node.definition.attr


@dataclass
class Closure:
    """The nodes of a computation with all that it needs inside, and what it takes and gives.

    Attributes:
      nodes: by name, in order; members of the unit, and copies of nodes that are cheaper to
        repeat than to hand over, or that XLA must see to know a shape.
      inputs: what it takes from outside.
    """

    nodes: dict[str, Node]
    inputs: list[Output]


def close(unit: Unit, body: Body, uniform: set[Output], library: "Library") -> Closure:
    """What a computation must hold so that XLA knows the shapes in it.

    Shapes are numbers that other nodes compute; XLA must see how, so those nodes are repeated
    inside. So is what is computed from variables alone, as each core of a TPU would.
    """
    types = types_of(body, library)
    members = {each.name for each in unit.nodes}
    found: dict[str, Node] = {}
    inputs: dict[Output, None] = {}

    def is_repeated(output: Output) -> bool:
        node = body.nodes.get(output.producer)
        if node is None or op_traits.is_stateful(node.definition, library):
            return False
        if node.definition.op == "Const":
            return True
        if op_traits.is_coupled(node.definition, library):
            return False
        if types[output] in dtypes.WHOLE_NUMBERS and node.definition.op in _OF_SHAPES:
            return True
        return output in uniform and unit.kind in (Kind.REPLICATED, Kind.WRITING)

    pending = list(members)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        node = found[name] = body.nodes[name]
        for each in node.inputs:
            if each.producer in members or is_repeated(each):
                pending.append(each.producer)
            else:
                inputs[each] = None
    ordered = {name: found[name] for name in body.nodes if name in found}
    return Closure(ordered, list(inputs))


# What computes shapes, and indices into them, from shapes. Their inputs may be anything.
_OF_SHAPES = frozenset(
    """
    Add AddV2 BroadcastArgs BroadcastGradientArgs Cast Concat ConcatOffset ConcatV2 DynamicStitch
    Equal ExpandDims Fill FloorDiv FloorMod Gather GatherV2 Greater GreaterEqual Identity
    InvertPermutation Less LessEqual LogicalAnd LogicalNot LogicalOr Max Maximum Min Minimum Mod
    Mul Neg NotEqual OnesLike Pack Prod Range Rank RealDiv Reshape Reverse ReverseV2 Select
    SelectV2 Shape ShapeN Size Slice Split Squeeze StridedSlice Sub Sum Tile TruncateDiv Unpack
    Where ZerosLike
    """.split()  # noqa: SIM905
)


def used_outside(unit: Unit, closures: Iterable[Closure], body: Body) -> dict[Output, None]:
    """The outputs of a unit that others, or the caller of the body, want."""
    members = {each.name for each in unit.nodes}
    wanted = [each for closure in closures for each in closure.inputs] + body.results
    return {each: None for each in wanted if each.producer in members}
