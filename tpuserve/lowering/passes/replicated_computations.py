"""The TPU computations of a body: found by the marks that tensorflow.python.tpu left, expanded.

A computation is the nodes between the TPUReplicatedInputs and the TPUReplicatedOutputs. All of
them carry its name in one attribute.
"""

import dataclasses
from typing import TYPE_CHECKING

from tpuserve.errors import LoweringError
from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.core_placement import first_cores
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes.replica_unrolling import ReplicaContext, unroll_replicas

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef

MEMBER_ATTRIBUTE = "_tpu_replicate"


def lower_computations(
    body: GraphIR, library: "dict[str, FunctionDef]", *, compiled: bool
) -> GraphIR:
    """The body with the copies of all replicas in place of each computation.

    Args:
      body: its nodes may have computations among them.
      library: function name → function; functions that are made are added.
      compiled: whether XLA compiles what each core computes.

    Raises:
      LoweringError: something has no form on a CPU.
    """
    names = {
        each.definition.attr[MEMBER_ATTRIBUTE].s.decode(): None
        for each in body.nodes.values()
        if MEMBER_ATTRIBUTE in each.definition.attr
    }
    for name in names:
        body = _without(body, name, library, compiled=compiled)
    return body


def _without(
    body: GraphIR, name: str, library: "dict[str, FunctionDef]", *, compiled: bool
) -> GraphIR:
    members = {
        each.name: each
        for each in body.nodes.values()
        if each.definition.attr[MEMBER_ATTRIBUTE].s.decode() == name
        and each.definition.op != "TPUReplicateMetadata"
    }
    others = {each.name: each for each in body.nodes.values() if each.name not in members}
    replicas = ReplicaContext(_cores(name, others), library, compiled)
    types = graph_ir.value_types(body, library)
    outside = {
        each: types[each]
        for node in members.values()
        for each in node.inputs
        if each.producer not in members
    }
    inner = GraphIR(
        graph_ir.topological_order(members.values()),
        outside=outside,
        results=[
            each for node in others.values() for each in node.inputs if each.producer in members
        ]
        + [each for each in body.results if each.producer in members],
        kept=[
            each
            for names in (body.kept, *(node.controls for node in others.values()))
            for each in names
            if each in members
        ],
    )
    values = {each: _of_replicas(each, others, replicas.count) for each in outside}
    out = unroll_replicas(inner, values, replicas, name, [*others, *body.arguments])

    def value(output: Value) -> Value:
        return out.values[output][0] if output.producer in members else output

    def after(names: list[str]) -> list[str]:
        found: list[str] = []
        for each in names:
            if each in members:
                found += out.after.get(each, [])
            else:
                found.append(each)
        return found

    for each in {each.producer for each in outside} & others.keys():
        if others[each].definition.op == "TPUReplicatedInput":
            del others[each]
    for node in others.values():
        node.controls = after(node.controls)
        if node.definition.op == "TPUReplicatedOutput" and node.inputs[0].producer in members:
            node.inputs = out.values[node.inputs[0]]
            node.definition = _identities(types[Value(node.name)], replicas.count)
        else:
            node.inputs = [value(each) for each in node.inputs]
    return dataclasses.replace(
        body,
        nodes=graph_ir.topological_order([*others.values(), *out.nodes]),
        results=[value(each) for each in body.results],
        kept=after(body.kept),
    )


def _cores(name: str, others: dict[str, Node]) -> list[int]:
    for node in others.values():
        definition = node.definition
        if (
            definition.op == "TPUReplicateMetadata"
            and definition.attr[MEMBER_ATTRIBUTE].s.decode() == name
        ):
            return first_cores(definition)
    raise LoweringError(
        f"TPU computation {name!r} has no TPUReplicateMetadata that says how many replicas it "
        f"has. Build it by tpu.rewrite, tpu.shard or tpu.replicate."
    )


def _of_replicas(output: Value, others: dict[str, Node], count: int) -> list[Value]:
    node = others.get(output.producer)
    if node is None or node.definition.op != "TPUReplicatedInput":
        return [output] * count
    return list(node.inputs) if len(node.inputs) == count else [node.inputs[0]] * count


def _identities(kind: int, count: int) -> "object":
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    definition = NodeDef(op="IdentityN")
    definition.attr["T"].list.type.extend([kind] * count)
    return definition
