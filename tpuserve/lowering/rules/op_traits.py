"""Traits of nodes, derived from the op table and from the functions that the nodes call."""

from typing import TYPE_CHECKING, Any

from tpuserve.graph.graph_walk import HOST_ATTRIBUTE
from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library


def is_constant(node: "NodeDef") -> bool:
    """Return whether a node is a constant."""
    return op_spec(node.op).kind is OpKind.CONSTANT


def is_loop(node: "NodeDef") -> bool:
    """Return whether a node is a functional while loop."""
    return op_spec(node.op).kind is OpKind.LOOP


def is_branch(node: "NodeDef") -> bool:
    """Return whether a node is an If or Case: its first input selects the function to call."""
    return op_spec(node.op).kind is OpKind.BRANCH


def branch_functions(node: "NodeDef") -> list[Any]:
    """Return the branches of an If or Case as NameAttrLists; changing them changes the node."""
    if "branches" in node.attr:
        return list(node.attr["branches"].list.func)
    return [node.attr["then_branch"].func, node.attr["else_branch"].func]


def is_on_host(node: "NodeDef") -> bool:
    """Return whether a node belongs to an outside compilation, which the host runs."""
    return HOST_ATTRIBUTE in node.attr


def communicates(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node exchanges data with other replicas or with the host.

    A node that calls a function with such a node counts, too.
    """
    return any(
        op_spec(inner.op).communicates or is_on_host(inner)
        for inner in op_defs.walk_calls([node], library)
    )


def is_lowered_jointly(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node communicates, or is replaced for all replicas at once.

    A node that calls a function with such a node counts, too. XLA cannot compile any of these
    nodes.
    """
    return any(
        op_spec(inner.op).is_lowered_jointly or is_on_host(inner)
        for inner in op_defs.walk_calls([node], library)
    )


def writes_variable(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node, or a function it calls, updates a variable."""
    return any(
        op_spec(inner.op).kind is OpKind.VARIABLE_UPDATE
        for inner in op_defs.walk_calls([node], library)
    )


def is_random(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node, or a function that it calls, may give other outputs in each run."""
    return any(
        op_spec(inner.op).is_random
        and op_defs.is_stateful(inner, library)
        # Leave out a call of a function that updates a variable: the call is stateful because of
        # the update, and random only if a node of the function is random. `walk_calls` yields the
        # nodes of the function too.
        and not writes_variable(inner, library)
        for inner in op_defs.walk_calls([node], library)
    )


def must_run(node: "NodeDef", library: "Library") -> bool:
    """Return whether a node must run for its side effect even if no node uses its outputs."""
    if writes_variable(node, library):
        return True
    # A collective need not run if its result is unused: it communicates, but has no side effect.
    is_collective = op_spec(node.op).kind is OpKind.COLLECTIVE
    return communicates(node, library) and not is_collective
