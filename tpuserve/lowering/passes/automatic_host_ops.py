"""Automatic outside compilation: marks the ops of a TPU computation that only the host can run.

With `tf.config.set_soft_device_placement(True)`, TensorFlow puts an attribute on a computation's
metadata, and its TPU compiler leaves the ops to the host that XLA cannot compile.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tpuserve.graph.graph_walk import (
    CLUSTER_ATTRIBUTE,
    HOST_ATTRIBUTE,
    REPLICATE_METADATA,
    called_functions,
)
from tpuserve.graph.traversal import find_reachable
from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.passes import version_1_loops
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library

_ALLOWED = "allow_soft_placement"
_CONTROL_FLOW = (OpKind.CALL, OpKind.BRANCH, OpKind.LOOP)


def mark_host_ops(nodes: "Iterable[NodeDef]", functions: "Mapping[str, FunctionDef]") -> None:
    """Outside-compile, in place, the ops that XLA cannot compile, where soft placement is allowed.

    Args:
      nodes: the NodeDefs of the main graph.
    """
    for body in (nodes, *(function.node_def for function in functions.values())):
        allowed = {
            node.attr[CLUSTER_ATTRIBUTE].s
            for node in body
            if node.op == REPLICATE_METADATA and node.attr[_ALLOWED].b
        }
        if allowed:
            members = [
                node
                for node in body
                if CLUSTER_ATTRIBUTE in node.attr and node.attr[CLUSTER_ATTRIBUTE].s in allowed
            ]
            _mark(members, functions)


def _mark(members: "Iterable[NodeDef]", functions: "Mapping[str, FunctionDef]") -> None:
    def mark(nodes: "Iterable[NodeDef]") -> set[str]:
        called = set()
        for node in nodes:
            if not op_traits.is_on_host(node) and _needs_host(node, functions):
                node.attr[HOST_ATTRIBUTE].s = b"auto"
            if not op_traits.is_on_host(node):
                called |= {node.op, *called_functions(node)}
        return called

    find_reachable(
        mark(members), lambda name: mark(functions[name].node_def) if name in functions else None
    )


def _needs_host(node: "NodeDef", library: "Library") -> bool:
    # Imported here, because it imports TensorFlow, which the lowering of most graphs does not need.
    from tpuserve.lowering.rules.xla_kernels import is_compilable

    spec = op_spec(node.op)
    if (
        spec.is_tpu_op
        or spec.kind in _CONTROL_FLOW
        or spec.kind is OpKind.CONSTANT
        or node.op in library
        or node.op in version_1_loops.OPS
    ):
        return False
    return not is_compilable(node, library) or _has_strings(node, library)


def _has_strings(node: "NodeDef", library: "Library") -> bool:
    signature = op_defs.op_definition(node, library)
    arguments = (*signature.input_arg, *signature.output_arg)
    return any(argument.type == dtypes.STRING for argument in arguments) or any(
        dtypes.STRING in (attribute.type, *attribute.list.type) for attribute in node.attr.values()
    )
