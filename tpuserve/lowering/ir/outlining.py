"""Functions made of computations, and the nodes that call them."""

import dataclasses
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir.graph_ir import GraphIR, Node
from tpuserve.saved_model import dtypes

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

MUST_COMPILE = "_XlaMustCompile"
SWITCH_MERGE = "_lower_using_switch_merge"
NOT_INLINE = "_noinline"
INLINE = "_lower_as_multi_device_function"
_SEED_DISTANCE = 0x5EED


def make_call(function: str, signature_of: "FunctionDef", *, must_compile: bool) -> Any:
    """The definition of a node that calls a function, compiled by XLA if it must be."""
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    call = NodeDef(op="StatefulPartitionedCall")
    call.attr["f"].func.name = function
    call.attr["Tin"].list.type.extend(each.type for each in signature_of.signature.input_arg)
    call.attr["Tout"].list.type.extend(each.type for each in signature_of.signature.output_arg)
    call.attr["Tin"].list.SetInParent()
    call.attr["Tout"].list.SetInParent()
    for name in ("config", "config_proto", "executor_type"):
        call.attr[name].s = b""
    if must_compile:
        call.attr[MUST_COMPILE].b = True
    elif any(each.type == dtypes.RESOURCE for each in signature_of.signature.input_arg):
        # Inlined, its nodes would touch variables before what the call waits for is done.
        signature_of.attr[NOT_INLINE].b = True
    else:
        # Inlined, its nodes are optimised along with those around it.
        call.attr[INLINE].b = True
    return call


def is_seeded(node: Node) -> bool:
    """Whether a node draws random numbers from seeds of its own."""
    attributes = node.definition.attr
    return "seed" in attributes and "seed2" in attributes


def reseed(body: GraphIR, replica: int) -> GraphIR:
    """The body with other seeds for each replica but the first."""
    # An op's generator starts from its seeds: with the same ones all replicas would drop out the
    # same units.
    nodes = {}
    for node in body.nodes.values():
        definition = node.definition
        if is_seeded(node):
            definition = type(definition)()
            definition.CopyFrom(node.definition)
            seed = definition.attr["seed2"]
            if seed.i or definition.attr["seed"].i:
                seed.i = (seed.i + replica * _SEED_DISTANCE) % 2**31
        nodes[node.name] = Node(node.name, definition, node.inputs, node.controls)
    return dataclasses.replace(body, nodes=nodes)
