"""Which values are the same on all replicas, so that computing them once is enough.

What comes from the infeed differs, and so does whatever is made of it, until a collective over
all replicas has met it. Variables are the same everywhere: every replica makes the same updates.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import op_traits
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import inlining
from tpuserve.lowering.rules import collectives

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_traits import Library


def invariant_values(
    body: GraphIR, given: set[Value], replicas: int, library: "Library"
) -> set[Value]:
    """What is the same on all replicas: of the arguments, those given; and outputs of nodes."""
    uniform = set(given)
    for node in body.nodes.values():
        types = op_traits.outputs_of(node.definition, library)
        for number, is_uniform in enumerate(
            _of_node(node, len(types), body, uniform, replicas, library)
        ):
            if is_uniform or op_traits.is_handle(types[number][1]):
                uniform.add(Value(node.name, number))
    return uniform


def invariant_loop_variables(
    node: Node, uniform: set[Value], replicas: int, library: "Library"
) -> list[bool]:
    """For each value that a While carries along: whether it is uniform in every iteration."""
    loop = inlining.inlined_function_body(node.definition.attr["body"].func.name, library)
    names = list(loop.arguments)
    current = [each in uniform for each in node.inputs]
    while True:
        found = invariant_values(
            loop,
            {Value(name) for name, is_uniform in zip(names, current, strict=True) if is_uniform},
            replicas,
            library,
        )
        after = [was and result in found for was, result in zip(current, loop.results, strict=True)]
        if after == current:
            return current
        current = after


def has_invariant_predicate(
    node: Node, uniform: set[Value], replicas: int, library: "Library"
) -> bool:
    """Whether all replicas take the same branch, or make the same number of iterations."""
    if node.definition.op not in op_traits.LOOPS:
        return node.inputs[0] in uniform
    arguments = invariant_loop_variables(node, uniform, replicas, library)
    return _goes_on_alike(node, arguments, replicas, library)


def must_split(
    node: Node, body: GraphIR, uniform: set[Value], replicas: int, library: "Library"
) -> bool:
    """Whether a loop or conditional updates a variable, and gives what differs between replicas.

    Its updates are made once and the rest by each replica, so it is no computation of one kind.
    """
    definition = node.definition
    if definition.op not in op_traits.LOOPS and not op_traits.branches_of(definition):
        return False
    if not op_traits.writes_variable(definition, library) or op_traits.communicates(
        definition, library
    ):
        return False
    used = {*body.results, *(each for other in body.nodes.values() for each in other.inputs)}
    return any(
        each.producer == node.name and each not in uniform for each in used
    ) and has_invariant_predicate(node, uniform, replicas, library)


def invariant_results(
    name: str, uniform_inputs: Sequence[bool], replicas: int, library: "Library"
) -> list[bool]:
    """For each result of a function: whether it is uniform, given which arguments are."""
    called = inlining.inlined_function_body(name, library)
    arguments = {
        Value(name)
        for name, is_uniform in zip(called.arguments, uniform_inputs, strict=True)
        if is_uniform
    }
    found = invariant_values(called, arguments, replicas, library)
    return [each in found for each in called.results]


def _of_node(
    node: Node,
    outputs: int,
    body: GraphIR,
    uniform: set[Value],
    replicas: int,
    library: "Library",
) -> Sequence[bool]:
    definition = node.definition
    all_inputs = all(each in uniform for each in node.inputs)
    if definition.op in op_traits.DEQUEUES:
        return [False] * outputs
    if definition.op == op_traits.REPLICA_ID:
        return [replicas == 1] * outputs
    if definition.op in op_traits.COLLECTIVES:
        return [collectives.is_full_all_reduce(node, body.nodes, replicas)] * outputs
    is_controlled = definition.op in op_traits.LOOPS or bool(op_traits.branches_of(definition))
    if is_controlled and (
        op_traits.communicates(definition, library)
        or op_traits.writes_variable(definition, library)
    ):
        return _of_controlled(node, outputs, uniform, replicas, library)
    return [all_inputs and not op_traits.is_random(definition, library)] * outputs


def _of_controlled(
    node: Node, outputs: int, uniform: set[Value], replicas: int, library: "Library"
) -> Sequence[bool]:
    if node.definition.op in op_traits.LOOPS:
        carried = invariant_loop_variables(node, uniform, replicas, library)
        is_alike = _goes_on_alike(node, carried, replicas, library)
        return carried if is_alike else [False] * outputs
    if node.inputs[0] not in uniform:
        return [False] * outputs
    inputs = [each in uniform for each in node.inputs[1:]]
    branches = [
        invariant_results(each.name, inputs, replicas, library)
        for each in op_traits.branches_of(node.definition)
    ]
    return [all(each) for each in zip(*branches, strict=True)]


def _goes_on_alike(
    node: Node, arguments: Sequence[bool], replicas: int, library: "Library"
) -> bool:
    condition = node.definition.attr["cond"].func.name
    return all(invariant_results(condition, arguments, replicas, library))
