"""Builds calls of functions that hold nodes of a graph, and changes random seeds in such functions.

To let XLA compile some nodes as a whole, the lowering moves them into a function (outlining).
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

# Boolean attributes by which TensorFlow decides how to run a node or function.
MUST_COMPILE = "_XlaMustCompile"
SWITCH_MERGE = "_lower_using_switch_merge"
NOT_INLINE = "_noinline"
INLINE = "_lower_as_multi_device_function"

# Replica r adds r times this number to the second seed of each random op, so that the replicas draw
# different random numbers.
_SEED_DISTANCE = 0x5EED


def make_call(function: str, definition: "FunctionDef", *, must_compile: bool) -> Any:
    """Build the NodeDef of a call of a function.

    Args:
      definition: the FunctionDef. If the function takes resource handles and XLA does not compile
        the call, an attribute that forbids inlining is added to the FunctionDef.
    """
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    signature = definition.signature
    call = NodeDef(op="StatefulPartitionedCall")
    call.attr["f"].func.name = function
    call.attr["Tin"].list.type.extend(argument.type for argument in signature.input_arg)
    call.attr["Tout"].list.type.extend(result.type for result in signature.output_arg)
    call.attr["Tin"].list.SetInParent()
    call.attr["Tout"].list.SetInParent()
    for name in ("config", "config_proto", "executor_type"):
        call.attr[name].s = b""
    if must_compile:
        call.attr[MUST_COMPILE].b = True
    elif any(op_defs.is_handle(argument.type) for argument in signature.input_arg):
        # Forbid TensorFlow to inline the function: inlined nodes do not wait for the control inputs
        # of the call, so they could read or update variables too early.
        definition.attr[NOT_INLINE].b = True
    else:
        # The function uses no variables. Let TensorFlow inline it, so that Grappler optimises it
        # together with the nodes around the call.
        call.attr[INLINE].b = True
    return call


def has_seed_attributes(node: Node) -> bool:
    """Return whether a node is a random op whose seeds are attributes."""
    attributes = node.definition.attr
    return "seed" in attributes and "seed2" in attributes


def reseed(graph: GraphIR, replica: int) -> GraphIR:
    """Return a copy of a graph in which random ops have different seeds for each replica.

    With equal seeds, all replicas would draw the same random numbers, and dropout would drop the
    same units on all of them.
    """
    nodes = {}
    for node in graph.nodes.values():
        definition = node.definition
        if has_seed_attributes(node):
            definition = type(definition)()
            definition.CopyFrom(node.definition)
            seed = definition.attr["seed2"]
            if seed.i or definition.attr["seed"].i:
                seed.i = (seed.i + replica * _SEED_DISTANCE) % 2**31
        nodes[node.name] = Node(node.name, definition, node.inputs, node.controls)
    return dataclasses.replace(graph, nodes=nodes)
