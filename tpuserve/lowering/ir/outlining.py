"""Outlining: replaces a cluster of nodes by a function and one node that calls the function."""

import dataclasses
from typing import TYPE_CHECKING, Any

from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

# Boolean attributes of call nodes and functions. In this order they tell TensorFlow to compile the
# function by XLA, to rewrite If and While with Switch and Merge, not to inline the function, and to
# inline it.
MUST_COMPILE = "_XlaMustCompile"
SWITCH_MERGE = "_lower_using_switch_merge"
NOT_INLINE = "_noinline"
INLINE = "_lower_as_multi_device_function"

# Replica r adds r times this number to the second seed of a random op, so that each replica draws
# other numbers.
_SEED_DISTANCE = 0x5EED


def make_call(function: str, definition: "FunctionDef", *, must_compile: bool) -> Any:
    """Build the NodeDef of a call of a function.

    Args:
      function: the function's name.
      definition: the function. If XLA does not compile the call and the function takes resource
        handles, an attribute that forbids inlining is added to the function.
      must_compile: whether XLA compiles the call.

    Returns:
      A StatefulPartitionedCall without name and inputs.
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
        # Forbid inlining, because nodes of an inlined function do not wait for the control inputs
        # of the call. They could read or update the variables of the function too early.
        definition.attr[NOT_INLINE].b = True
    else:
        # Inline a function without variables, so that Grappler optimises it together with the nodes
        # around the call.
        call.attr[INLINE].b = True
    return call


def has_seed_attributes(node: Node) -> bool:
    """Return whether a node draws random numbers from seeds in its attributes."""
    attributes = node.definition.attr
    return "seed" in attributes and "seed2" in attributes


def reseed(graph: GraphIR, replica: int) -> GraphIR:
    """Return a copy of a graph whose random ops have seeds of their own for a replica.

    The random number generator of an op starts from the op's seeds. With equal seeds, dropout would
    drop the same units on all replicas. Replica 0 keeps the seeds. An op whose seeds are both 0 is
    not changed: TensorFlow seeds it at random.

    Args:
      graph: the body of a cluster.
      replica: index of the replica, from 0.
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
