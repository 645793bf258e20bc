"""Loops and conditionals in which replicas meet: one of each, for all replicas."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir import op_traits
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.lowering.ir.outlining import SWITCH_MERGE
from tpuserve.lowering.passes import replica_invariance

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    # (function, which arguments are uniform, which results are) → the function of all replicas.
    ExpandFunction = Callable[[str, Sequence[bool], Sequence[bool]], str]


def fuse_replicas(
    node: Node,
    values: Sequence[Sequence[Value]],
    invariant_values: set[Value],
    replicas: "ReplicaContext",
    expand: "ExpandFunction",
) -> "tuple[NodeDef, list[Value], list[bool]]":
    """The one node that does for all replicas what a node does for one.

    Args:
      node: a While, an If or a Case.
      values: for each of its inputs, what each replica has.
      uniform_outputs: outputs that are the same on all replicas.
      replicas: who they are.
      expand: makes functions of all replicas.

    Returns:
      The node's definition; its inputs; for each output of the original, whether there is one
      for all replicas in its place, or one for each.
    """
    op = node.definition.op
    is_loop = op in op_traits.LOOPS
    if not is_loop and not op_traits.branches_of(node.definition):
        raise LoweringError(
            f"{op} {node.name!r} holds a collective, an infeed or outfeed, or a part on the host, "
            f"and has no form on a CPU then. Use tf.cond or tf.while_loop there."
        )
    if not replica_invariance.has_invariant_predicate(
        node, invariant_values, replicas.count, replicas.library
    ):
        raise LoweringError(
            f"{op} {node.name!r} holds a collective, an infeed or outfeed, or a part on the host, "
            f"and replicas may disagree on its condition. Make the condition the same on all of "
            f"them, by tpu.cross_replica_sum."
        )
    if is_loop:
        return _while(node, values, invariant_values, replicas, expand)
    return _branches(node, values, invariant_values, replicas, expand)


def _while(
    node: Node,
    values: Sequence[Sequence[Value]],
    invariant_values: set[Value],
    replicas: "ReplicaContext",
    expand: "ExpandFunction",
) -> "tuple[NodeDef, list[Value], list[bool]]":
    is_uniform = replica_invariance.invariant_loop_variables(
        node, invariant_values, replicas.count, replicas.library
    )
    definition = _copy(node)
    definition.op = "While"
    attributes = definition.attr
    attributes["body"].func.name = expand(attributes["body"].func.name, is_uniform, is_uniform)
    attributes["cond"].func.name = expand(attributes["cond"].func.name, is_uniform, [True])
    _repeat_types(attributes["T"], is_uniform, replicas.count)
    shapes = list(attributes["output_shapes"].list.shape) if "output_shapes" in attributes else []
    if shapes:
        del attributes["output_shapes"].list.shape[:]
        attributes["output_shapes"].list.shape.extend(_repeated(shapes, is_uniform, replicas.count))
    # A step must be over before the next one reads the variables that it writes.
    attributes["parallel_iterations"].i = 1
    _drop_hints(definition)
    return definition, _flat(values, is_uniform), is_uniform


def _branches(
    node: Node,
    values: Sequence[Sequence[Value]],
    invariant_values: set[Value],
    replicas: "ReplicaContext",
    expand: "ExpandFunction",
) -> "tuple[NodeDef, list[Value], list[bool]]":
    definition = _copy(node)
    definition.op = definition.op.removeprefix("Stateless")
    attributes = definition.attr
    is_uniform = [each in invariant_values for each in node.inputs[1:]]
    branches = op_traits.branches_of(definition)
    found = [
        replica_invariance.invariant_results(
            each.name, is_uniform, replicas.count, replicas.library
        )
        for each in branches
    ]
    results = [all(each) for each in zip(*found, strict=True)]
    for each in branches:
        each.name = expand(each.name, is_uniform, results)
    _repeat_types(attributes["Tin"], is_uniform, replicas.count)
    _repeat_types(attributes["Tout"], results, replicas.count)
    attributes.pop("output_shapes", None)
    _drop_hints(definition)
    return definition, [values[0][0], *_flat(values[1:], is_uniform)], results


def _copy(node: Node) -> "NodeDef":
    definition = type(node.definition)()
    definition.CopyFrom(node.definition)
    return definition


def _flat(values: Sequence[Sequence[Value]], is_uniform: Sequence[bool]) -> list[Value]:
    return [
        output
        for each, one in zip(values, is_uniform, strict=True)
        for output in (each[:1] if one else each)
    ]


def _repeated(items: Sequence[Any], is_uniform: Sequence[bool], count: int) -> list[Any]:
    return [
        item
        for item, one in zip(items, is_uniform, strict=True)
        for _ in range(1 if one else count)
    ]


def _repeat_types(attribute: Any, is_uniform: Sequence[bool], count: int) -> None:
    types = _repeated(list(attribute.list.type), is_uniform, count)
    del attribute.list.type[:]
    attribute.list.SetInParent()
    attribute.list.type.extend(types)


def _drop_hints(definition: "NodeDef") -> None:
    # They speak of the outputs and attributes of the one replica.
    for name in ("_output_shapes", "_num_original_outputs", "_read_only_resource_inputs"):
        definition.attr.pop(name, None)
    # As part of the main graph the body is optimised like any of it. TensorFlow leaves this out
    # of what it takes to be for a TPU.
    definition.attr[SWITCH_MERGE].b = True
