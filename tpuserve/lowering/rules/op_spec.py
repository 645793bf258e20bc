"""The record of everything that the lowering knows about an op type."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from tpuserve.lowering.ir.graph_ir import Node, Value

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.rules.node_rewriting import RewriteScope

    # A function that replaces a node's op in place, or raises LoweringError if it cannot.
    Rewrite: TypeAlias = Callable[[NodeDef, RewriteScope], None]

# A function that takes a node, the nodes of its graph by name, and the number of replicas. It
# returns whether the outputs are the same on all replicas.
InvarianceRule: TypeAlias = Callable[[Node, Mapping[str, Node], int], bool]


class OpKind(Enum):
    """The role of an op in the lowering. The kind determines the op's effects."""

    COMPUTATION = auto()
    """An op that the table does not list. TensorFlow's op registry says whether it has effects;
    a stateful op counts as random."""
    CONSTANT = auto()
    IDENTITY = auto()
    SWITCH_MERGE = auto()
    """Control flow of TensorFlow 1 (Switch, Merge)."""
    NO_OP = auto()
    VARIABLE_HANDLE = auto()
    VARIABLE_READ = auto()
    VARIABLE_UPDATE = auto()
    """Updates a variable. A random generator's state is a variable too."""
    CALL = auto()
    BRANCH = auto()
    LOOP = auto()
    COLLECTIVE = auto()
    """Combines the values of several replicas."""
    REPLICA_ID = auto()
    INFEED_DEQUEUE = auto()
    OUTFEED_ENQUEUE = auto()
    HOST_TRANSFER = auto()
    """The host's end of an infeed or outfeed."""
    TPU_FRAME = auto()
    """Surrounds a TPU computation: its call, metadata, inputs, outputs and sharding."""
    TPU_SYSTEM = auto()
    """Starts, stops or checks the TPU system."""
    TPU_RUNTIME = auto()
    """Any other op of the TPU runtime. It has no replacement on a CPU."""


@dataclass(frozen=True)
class ReplicatedOp:
    """An op of a computation, together with its operands on all replicas.

    Attributes:
      node: the op in the graph of one replica.
      nodes: the nodes of that graph, by name.
      operand: operand(i)[r] is the value that replica r passes to input i. A constant is added to
        the graph of all replicas only when a rule asks for it.
      cores: cores[r] is the ordinal of the core whose infeed and outfeed replica r uses.
      make_node: adds a node to the graph of all replicas and returns its first output. Call it as
        `make_node(op, inputs, replica=r, **attributes)`: `op` is an op type or a NodeDef,
        `replica` puts the replica into the node's name, a Const takes a `value`.
    """

    node: Node
    nodes: Mapping[str, Node]
    operand: Callable[[int], Sequence[Value]]
    cores: Sequence[int]
    make_node: Callable[..., Value]

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.cores)


# A function that replaces an op for all replicas at once. It returns results[i][r], the value of
# output i on replica r.
ReplicatedLowering: TypeAlias = Callable[[ReplicatedOp], list[list[Value]]]


def never_invariant(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return False: the outputs of the op always differ between replicas."""
    return False


def invariant_on_one_replica(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return whether there is only one replica; between several, the op's outputs differ."""
    return num_replicas == 1


@dataclass(frozen=True)
class OpSpec:
    """Everything that the lowering knows about one op type.

    Attributes:
      op: the op type, or a pattern with `*` for a family of ops.
      kind: the role of the op, which determines its effects.
      is_tpu_op: whether the op belongs to the TPU runtime and has no CPU kernel. A TPU op that is
        left after the lowering is an error.
      rewrite: replaces the op inside and outside of computations; None keeps the op.
      renamed_outputs: name of an output argument → its name after `rewrite`. Function bodies refer
        to outputs by these names ("node:outputs:0").
      lower_replicated: replaces the op inside a computation, for all replicas at once; None for an
        op that needs no replacement, because each replica can run a copy.
      invariance: whether all replicas get the same outputs. None means that the outputs are the
        same if the inputs are the same and the op is not random.
      is_clustered: whether XLA may compile the op together with its neighbours.
    """

    op: str
    kind: OpKind
    is_tpu_op: bool = False
    rewrite: "Rewrite | None" = None
    renamed_outputs: Mapping[str, str] = field(default_factory=dict)
    lower_replicated: ReplicatedLowering | None = None
    invariance: InvarianceRule | None = None
    is_clustered: bool = True

    @property
    def communicates(self) -> bool:
        """Whether the op exchanges data with other replicas or with the host."""
        return self.lower_replicated is not None

    @property
    def is_random(self) -> bool:
        """Whether the op counts as random if TensorFlow declares it stateful."""
        return self.kind not in _EFFECTS_ARE_KNOWN

    @property
    def is_trivial(self) -> bool:
        """Whether the op computes nothing, so that compiling the op alone is not worthwhile."""
        return self.kind in (OpKind.CONSTANT, OpKind.IDENTITY, OpKind.NO_OP)


# A stateful op of one of these kinds has effects, but its outputs are not random.
_EFFECTS_ARE_KNOWN = frozenset(
    (
        OpKind.VARIABLE_READ,
        OpKind.VARIABLE_UPDATE,
        OpKind.CALL,
        OpKind.BRANCH,
        OpKind.LOOP,
        OpKind.COLLECTIVE,
    )
)
