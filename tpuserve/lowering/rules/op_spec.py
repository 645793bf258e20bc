"""The record of everything that the lowering knows about an op type."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from tpuserve.lowering.ir.graph_ir import Node, Value

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.rules.node_rewriting import RewriteScope

    # A rule that replaces the op of one NodeDef in place, or raises LoweringError if it cannot. The
    # scope is the graph or function body that holds the NodeDef.
    Rewrite: TypeAlias = Callable[[NodeDef, RewriteScope], None]

# A rule that tells whether the outputs of a node are the same on all replicas. It takes the node,
# the nodes of its graph by name, and the number of replicas.
InvarianceRule: TypeAlias = Callable[[Node, Mapping[str, Node], int], bool]


class OpKind(Enum):
    """The role of an op in the lowering, from which the lowering knows the op's side effects."""

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
    """An op of a TPU computation, with its operands on all replicas: the argument of a rule.

    Attributes:
      node: the op in the graph of one replica.
      nodes: the nodes of that graph, by name.
      operand: operand(i)[r] is the value that replica r passes to input i. This is a function so
        that a constant is added to the graph of all replicas only if a rule uses the constant.
      cores: cores[r] is the ordinal of the core whose infeed and outfeed replica r uses.
      make_node: adds a node to the graph of all replicas and returns its first output. Call it as
        `make_node(op, inputs, replica=r, **attributes)`: `op` is an op type or a NodeDef;
        `replica`, if given, becomes part of the node's name; a Const takes its value as `value`.
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


# A rule that adds the nodes that do the work of an op on all replicas. It returns results[i][r],
# the value that replaces output i of the op on replica r.
ReplicatedLowering: TypeAlias = Callable[[ReplicatedOp], list[list[Value]]]


def never_invariant(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return False: the outputs of the op always differ between replicas."""
    return False


def invariant_on_one_replica(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return whether all replicas compute the same outputs of an op that depends on the replica.

    They do so only if there is one replica.
    """
    return num_replicas == 1


@dataclass(frozen=True)
class OpSpec:
    """The record of an op type: everything that the lowering knows about it.

    Attributes:
      op: the op type, or a pattern with `*` for several op types.
      kind: the role of the op, which determines its side effects.
      is_tpu_op: whether the op belongs to the TPU runtime and has no CPU kernel. A TPU op that is
        left after the lowering is an error.
      rewrite: replaces the op of one node, inside and outside of TPU computations; None for an op
        that stays.
      renamed_outputs: name of an output argument → its name after `rewrite`. Function bodies refer
        to outputs by these names ("node:outputs:0").
      lower_replicated: replaces the op inside a computation, for all replicas at once; None for an
        op that needs no replacement, because each replica can run a copy.
      invariance: tells whether all replicas get the same outputs. None means that they get the same
        outputs if their inputs are the same and the op is not random.
      is_reduction: whether the op combines values of several replicas into one, such as their sum.
      is_clustered: whether XLA may compile the op in the same function as other ops.
    """

    op: str
    kind: OpKind
    is_tpu_op: bool = False
    rewrite: "Rewrite | None" = None
    renamed_outputs: Mapping[str, str] = field(default_factory=dict)
    lower_replicated: ReplicatedLowering | None = None
    invariance: InvarianceRule | None = None
    is_reduction: bool = False
    is_clustered: bool = True

    @property
    def communicates(self) -> bool:
        """Whether the op exchanges data with other replicas or with the host."""
        return self.kind in _COMMUNICATING

    @property
    def is_lowered_jointly(self) -> bool:
        """Whether the op is replaced for all replicas at once, so that no replica can run a copy.

        True of ops that communicate, and of XlaReplicaId, whose replacement differs by replica.
        """
        return self.lower_replicated is not None

    @property
    def is_random(self) -> bool:
        """Whether the op counts as random wherever TensorFlow declares it stateful.

        An op that TensorFlow declares stateless is never random.
        """
        return self.kind not in _EFFECTS_ARE_KNOWN

    @property
    def is_trivial(self) -> bool:
        """Whether the op computes nothing: XLA need not compile a cluster of only such ops."""
        return self.kind in (OpKind.CONSTANT, OpKind.IDENTITY, OpKind.NO_OP)


_COMMUNICATING = frozenset((OpKind.COLLECTIVE, OpKind.INFEED_DEQUEUE, OpKind.OUTFEED_ENQUEUE))
# The kinds of ops that are not random although TensorFlow may declare them stateful: they are
# stateful because of their side effects.
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
