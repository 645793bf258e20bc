"""Finds properties of nodes, from the table `op_table` and from the functions that they call."""

from typing import TYPE_CHECKING, Any

from tpuserve.graph.graph_walk import HOST_ATTRIBUTE
from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library


def is_constant(node: "NodeDef") -> bool:
    """Return whether a node is a Const."""
    return op_spec(node.op).kind is OpKind.CONSTANT


def is_loop(node: "NodeDef") -> bool:
    """Return whether a node is a While or StatelessWhile."""
    return op_spec(node.op).kind is OpKind.LOOP


def is_branch(node: "NodeDef") -> bool:
    """Return whether a node is a conditional: an If or a Case, or a stateless form of these."""
    return op_spec(node.op).kind is OpKind.BRANCH


def branch_functions(node: "NodeDef") -> list[Any]:
    """Return the NameAttrLists of the functions that an If or Case calls, one for each branch.

    They are parts of the NodeDef, and not copies.
    """
    if "branches" in node.attr:
        return list(node.attr["branches"].list.func)
    return [node.attr["then_branch"].func, node.attr["else_branch"].func]


def is_on_host(node: "NodeDef") -> bool:
    """Return whether a node is outside-compiled, so that the host runs it and not the TPU."""
    return HOST_ATTRIBUTE in node.attr


def communicates(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node exchanges data with other replicas or with the host.

    The nodes of the functions that it calls count as well.
    """
    return any(
        op_spec(inner.op).communicates or is_on_host(inner)
        for inner in op_defs.walk_calls([node], library)
    )


def is_lowered_jointly(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node must be replaced for all replicas at once.

    This is true if the node, or a node of the functions that it calls, communicates with the host
    or with other replicas, or is an XlaReplicaId.
    """
    return any(
        op_spec(inner.op).is_lowered_jointly or is_on_host(inner)
        for inner in op_defs.walk_calls([node], library)
    )


def writes_variable(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node, or a function that it calls, updates a variable."""
    return any(
        op_spec(inner.op).kind is OpKind.VARIABLE_UPDATE
        for inner in op_defs.walk_calls([node], library)
    )


def is_random(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node, or a function that it calls, draws random numbers."""
    return any(
        op_spec(inner.op).is_random
        and op_defs.is_stateful(inner, library)
        # A call of a function that updates a variable is stateful because of the update, even if
        # the function draws no random numbers.
        and not writes_variable(inner, library)
        for inner in op_defs.walk_calls([node], library)
    )


def must_run(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node must run for its side effect even if no node uses its outputs."""
    if writes_variable(node, library):
        return True
    # If the result of a collective is not used, the collective need not run: although it
    # communicates, it has no side effect.
    is_collective = op_spec(node.op).kind is OpKind.COLLECTIVE
    return communicates(node, library) and not is_collective
