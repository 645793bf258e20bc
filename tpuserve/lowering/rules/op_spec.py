"""Defines `OpSpec`, the record of how the lowering treats an op type.

The lowering turns a graph for a TPU into a graph for a CPU, which does the work of all replicas.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from tpuserve.lowering.ir.graph_ir import Node, Value

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.rules.node_rewriting import RewriteScope

    # The type of `OpSpec.rewrite`: a function that replaces the op of a NodeDef in place, or raises
    # LoweringError if the op cannot be replaced.
    Rewrite: TypeAlias = Callable[[NodeDef, RewriteScope], None]

# The type of `OpSpec.invariance`: a function that returns whether the outputs of a node are the
# same on all replicas.
InvarianceRule: TypeAlias = Callable[[Node, Mapping[str, Node], int], bool]


class OpKind(Enum):
    """The categories of ops, from which the lowering derives the side effects of an op."""

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
    """An op of a TPU computation, and what a rule needs to replace it for all replicas.

    The rule adds nodes to a new graph, which does the work of all replicas.

    Attributes:
      operand: a function; operand(i)[r] is the value, in the new graph, that replica r passes to
        input i. If a constant produces the value, the call adds the constant to the new graph.
      cores: cores[r] is the ordinal of the TPU core whose infeed and outfeed replica r uses.
      make_node: adds a node to the new graph, and returns its first output. It is called as
        `make_node(op, inputs, replica=r, **attributes)`.
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


# The type of `OpSpec.lower_replicated`: a function that adds nodes which do the work of an op on
# all replicas.
ReplicatedLowering: TypeAlias = Callable[[ReplicatedOp], list[list[Value]]]


def never_invariant(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return False: the outputs of the op differ between replicas.

    This function is a possible value of `OpSpec.invariance`.
    """
    return False


def invariant_on_one_replica(node: Node, nodes: Mapping[str, Node], num_replicas: int) -> bool:
    """Return whether there is only one replica.

    This function is the value of `OpSpec.invariance` for an op whose outputs are the same on all
    replicas only if there is a single replica.
    """
    return num_replicas == 1


@dataclass(frozen=True)
class OpSpec:
    """The record of how the lowering treats an op type.

    Attributes:
      is_tpu_op: whether the op belongs to the TPU runtime and has no CPU kernel. Such an op must be
        replaced.
      rewrite: a function that replaces the op in a NodeDef, inside or outside of TPU computations;
        None for an op that stays.
      renamed_outputs: name of an output argument → its name after `rewrite`. In functions, inputs
        refer to outputs by these names ("node:outputs:0").
      lower_replicated: a function that replaces an op of a TPU computation for all replicas at
        once; None for an op that each replica runs by itself.
      invariance: a function that returns whether all replicas get the same outputs. None means that
        they do if their inputs are the same and the op is not random.
      reduction: how the op combines the values of several replicas into one, as a value of the
        attribute reduce_op of XlaAllReduce, such as "Add".
    """

    op: str
    kind: OpKind
    is_tpu_op: bool = False
    rewrite: "Rewrite | None" = None
    renamed_outputs: Mapping[str, str] = field(default_factory=dict)
    lower_replicated: ReplicatedLowering | None = None
    invariance: InvarianceRule | None = None
    reduction: str = ""
    is_clustered: bool = True

    @property
    def communicates(self) -> bool:
        """Whether the op exchanges data with other replicas or with the host."""
        return self.kind in _COMMUNICATING

    @property
    def is_lowered_jointly(self) -> bool:
        """Whether the op must be replaced for all replicas at once: no replica can run it alone.

        This is true for ops that communicate, and for XlaReplicaId, which becomes a different
        constant on each replica.
        """
        return self.lower_replicated is not None

    @property
    def is_reduction(self) -> bool:
        """Whether the op combines values of several replicas into one, such as their sum."""
        return bool(self.reduction)

    @property
    def is_random(self) -> bool:
        """Whether to treat the op as random if TensorFlow declares it as stateful.

        This is False for ops that are stateful for another reason, such as updates of variables.
        """
        return self.kind not in _EFFECTS_ARE_KNOWN

    @property
    def is_trivial(self) -> bool:
        """Whether the op computes nothing, so that it need not be compiled by XLA."""
        return self.kind in (OpKind.CONSTANT, OpKind.IDENTITY, OpKind.NO_OP)


_COMMUNICATING = frozenset((OpKind.COLLECTIVE, OpKind.INFEED_DEQUEUE, OpKind.OUTFEED_ENQUEUE))
# The categories of ops that are not random, although TensorFlow may declare them as stateful. They
# are stateful because of their side effects.
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
