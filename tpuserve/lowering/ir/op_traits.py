"""What an op's definition says about a node: its outputs, its state, the variables it touches."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tpuserve.graph.graph_walk import HOST_ATTRIBUTE, called_functions
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

    Library: TypeAlias = Mapping[str, FunctionDef]

COLLECTIVES = ("CrossReplicaSum", "AllToAll", "CollectivePermute")
DEQUEUES = ("InfeedDequeue", "InfeedDequeueTuple")
ENQUEUES = ("OutfeedEnqueue", "OutfeedEnqueueTuple")
REPLICA_ID = "XlaReplicaId"
LOOPS = ("While", "StatelessWhile")

_READS = frozenset(
    ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
)
_WRITES = (
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceScatter",
    "ResourceStridedSliceAssign",
    # A generator's state is a variable, which every replica moves on in the same way.
    "RngReadAndSkip",
    "RngSkip",
    "StatefulUniform",
    "StatefulStandardNormal",
    "StatefulTruncatedNormal",
    "StatefulRandomBinomial",
)
_CALLS = frozenset(
    ("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "While", "StatelessWhile")
    + ("Case", "StatelessCase")
)


def definition_of(node: "NodeDef", library: "Library") -> "OpDef":
    """The definition of a node's op, or the signature of the function it is named after."""
    from tensorflow.python.framework import op_def_registry

    if node.op in library:
        return library[node.op].signature
    return op_def_registry.get(node.op)


def outputs_of(node: "NodeDef", library: "Library") -> list[tuple[str, int]]:
    """Each output as functions refer to it ("outputs:1"), with the number of its type."""
    found = []
    for argument in definition_of(node, library).output_arg:
        if argument.type_list_attr:
            types = list(node.attr[argument.type_list_attr].list.type)
        else:
            one = node.attr[argument.type_attr].type if argument.type_attr else argument.type
            types = [one] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
        found += [(f"{argument.name}:{number}", each) for number, each in enumerate(types)]
    return found


def is_stateful(node: "NodeDef", library: "Library") -> bool:
    """Whether a node does or draws something beyond computing its outputs from its inputs."""
    return bool(definition_of(node, library).is_stateful)


def is_call(node: "NodeDef") -> bool:
    """Whether what a node does is said by the functions it names."""
    return node.op in _CALLS


def branches_of(node: "NodeDef") -> list[Any]:
    """The functions of which a node calls one, as its first input says; none for other nodes."""
    if node.op in ("If", "StatelessIf"):
        return [node.attr["then_branch"].func, node.attr["else_branch"].func]
    if node.op in ("Case", "StatelessCase"):
        return list(node.attr["branches"].list.func)
    return []


def reads_variable(node: "NodeDef") -> bool:
    """Whether a node reads a variable and has no other effect."""
    return node.op in _READS


def communicates(node: "NodeDef", library: "Library") -> bool:
    """Whether a node, or a function it calls, meets the other replicas or the host."""
    return any(
        each.op in (*COLLECTIVES, *DEQUEUES, *ENQUEUES, REPLICA_ID) or HOST_ATTRIBUTE in each.attr
        for each in with_called(node, library)
    )


def writes_variable(node: "NodeDef", library: "Library") -> bool:
    """Whether a node, or a function it calls, changes a variable."""
    return any(
        each.op.startswith(_WRITES)
        or (each.op.startswith("Assign") and each.op.endswith("VariableOp"))
        for each in with_called(node, library)
    )


def is_random(node: "NodeDef", library: "Library") -> bool:
    """Whether a node, or a function it calls, gives something else each time, as random ops do."""
    return any(
        is_stateful(each, library)
        and not (is_call(each) or reads_variable(each) or writes_variable(each, library))
        and each.op not in COLLECTIVES
        for each in with_called(node, library)
    )


def with_called(node: "NodeDef", library: "Library") -> "Iterator[NodeDef]":
    """A node and all nodes of the functions that it calls, at any depth."""
    seen: set[str] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        for name in {*called_functions(each), each.op} & library.keys() - seen:
            seen.add(name)
            pending.extend(library[name].node_def)


def is_handle(type_number: int) -> bool:
    """Whether a tensor of this type stands for something that lives elsewhere."""
    return type_number == dtypes.RESOURCE
