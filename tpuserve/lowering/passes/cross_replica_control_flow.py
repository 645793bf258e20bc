"""Replaces a loop or branch that each replica runs by a single one for all replicas.

This is necessary if replicas communicate inside of the loop or branch.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.lowering.ir.outlining import SWITCH_MERGE
from tpuserve.lowering.passes import replica_invariance
from tpuserve.lowering.rules import op_traits

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tpuserve.lowering.ir.op_defs import Library

    # The type of a callable that builds, from a function of one replica, a function that does the
    # work of all replicas.
    UnrollFunction = Callable[[str, Sequence[bool], Sequence[bool]], str]


def fuse_replicas(
    node: Node,
    operands: Sequence[Sequence[Value]],
    invariant: set[Value],
    library: "Library",
    unroll_function: "UnrollFunction",
) -> "tuple[NodeDef, list[Value], list[bool]]":
    """Build a single loop or branch that does the work of all replicas.

    Args:
      operands: operands[i][r] is the value that replica r passes to input i.
      unroll_function: builds, from a function of one replica such as the body of a loop, a
        function that does the work of all replicas. `UnrollFunction` describes its parameters.

    Returns:
      The NodeDef of the new node; its inputs; and for each output of the original node, whether it
      is the same on all replicas.
    """
    is_loop = op_traits.is_loop(node.definition)
    if not (is_loop or op_traits.is_branch(node.definition)):
        raise LoweringError(
            f"{node.op} {node.name!r} holds a collective, an infeed or outfeed, or an outside "
            f"compilation, and cannot be lowered to a CPU. Use tf.cond or tf.while_loop there."
        )
    num_replicas = len(operands[0])
    if not replica_invariance.has_invariant_predicate(node, invariant, num_replicas, library):
        raise LoweringError(
            f"{node.op} {node.name!r} holds a collective, an infeed or outfeed, or an outside "
            f"compilation, and replicas may disagree on its condition. Make the condition the "
            f"same on all replicas, by tpu.cross_replica_sum."
        )
    fuse = _fuse_loop if is_loop else _fuse_branch
    return fuse(node, operands, invariant, library, unroll_function)


def _fuse_loop(
    node: Node,
    operands: Sequence[Sequence[Value]],
    invariant: set[Value],
    library: "Library",
    unroll_function: "UnrollFunction",
) -> "tuple[NodeDef, list[Value], list[bool]]":
    num_replicas = len(operands[0])
    is_invariant = replica_invariance.invariant_loop_variables(
        node, invariant, num_replicas, library
    )
    definition = _copy_definition(node)
    definition.op = "While"
    attributes = definition.attr
    body, condition = attributes["body"].func, attributes["cond"].func
    body.name = unroll_function(body.name, is_invariant, is_invariant)
    condition.name = unroll_function(condition.name, is_invariant, [True])
    _repeat_types(attributes["T"], is_invariant, num_replicas)
    shapes = list(attributes["output_shapes"].list.shape) if "output_shapes" in attributes else []
    if shapes:
        del attributes["output_shapes"].list.shape[:]
        attributes["output_shapes"].list.shape.extend(_repeat(shapes, is_invariant, num_replicas))
    # Do not run iterations in parallel: an iteration must not read variables before the previous
    # iteration has updated them.
    attributes["parallel_iterations"].i = 1
    _replace_hints(definition)
    return definition, _flatten_operands(operands, is_invariant), is_invariant


def _fuse_branch(
    node: Node,
    operands: Sequence[Sequence[Value]],
    invariant: set[Value],
    library: "Library",
    unroll_function: "UnrollFunction",
) -> "tuple[NodeDef, list[Value], list[bool]]":
    num_replicas = len(operands[0])
    definition = _copy_definition(node)
    definition.op = definition.op.removeprefix("Stateless")
    attributes = definition.attr
    is_invariant = [value in invariant for value in node.inputs[1:]]
    branches = op_traits.branch_functions(definition)
    results_by_branch = [
        replica_invariance.invariant_results(branch.name, is_invariant, num_replicas, library)
        for branch in branches
    ]
    results = [all(flags) for flags in zip(*results_by_branch, strict=True)]
    for branch in branches:
        branch.name = unroll_function(branch.name, is_invariant, results)
    _repeat_types(attributes["Tin"], is_invariant, num_replicas)
    _repeat_types(attributes["Tout"], results, num_replicas)
    attributes.pop("output_shapes", None)
    _replace_hints(definition)
    inputs = [operands[0][0], *_flatten_operands(operands[1:], is_invariant)]
    return definition, inputs, results


def _copy_definition(node: Node) -> "NodeDef":
    definition = type(node.definition)()
    definition.CopyFrom(node.definition)
    return definition


def _flatten_operands(
    operands: Sequence[Sequence[Value]], is_invariant: Sequence[bool]
) -> list[Value]:
    """Return the inputs of a loop or branch that does the work of all replicas."""
    return [
        value
        for values, is_single in zip(operands, is_invariant, strict=True)
        for value in (values[:1] if is_single else values)
    ]


def _repeat(items: Sequence[Any], is_invariant: Sequence[bool], num_replicas: int) -> list[Any]:
    return [
        item
        for item, is_single in zip(items, is_invariant, strict=True)
        for _ in range(1 if is_single else num_replicas)
    ]


def _repeat_types(attribute: Any, is_invariant: Sequence[bool], num_replicas: int) -> None:
    types = _repeat(list(attribute.list.type), is_invariant, num_replicas)
    del attribute.list.type[:]
    attribute.list.SetInParent()
    attribute.list.type.extend(types)


def _replace_hints(definition: "NodeDef") -> None:
    # Remove attributes that describe inputs and outputs. They are wrong for the new node, which has
    # the inputs and outputs of all replicas.
    for name in ("_output_shapes", "_num_original_outputs", "_read_only_resource_inputs"):
        definition.attr.pop(name, None)
    # Set the attribute that lets TensorFlow replace the loop or branch by Switch and Merge, so that
    # Grappler optimises the body in the main graph.
    definition.attr[SWITCH_MERGE].b = True
