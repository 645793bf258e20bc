"""Which values are the same on all replicas, so that computing them once is enough.

What comes from the infeed differs, and so does whatever is made of it, until a collective over
all replicas has met it. Variables are the same everywhere: every replica makes the same updates.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tpuserve.lowering import body as bodies
from tpuserve.lowering import collectives, ops
from tpuserve.lowering.body import Body, Node, Output

if TYPE_CHECKING:
    from tpuserve.lowering.ops import Library


def uniform_outputs(
    body: Body, given: set[Output], replicas: int, library: "Library"
) -> set[Output]:
    """What is the same on all replicas: of the arguments, those given; and outputs of nodes."""
    uniform = set(given)
    for node in body.nodes.values():
        types = ops.outputs_of(node.definition, library)
        for number, is_uniform in enumerate(
            _of_node(node, len(types), body, uniform, replicas, library)
        ):
            if is_uniform or ops.is_handle(types[number][1]):
                uniform.add(Output(node.name, number))
    return uniform


def while_arguments(
    node: Node, uniform: set[Output], replicas: int, library: "Library"
) -> list[bool]:
    """For each value that a While carries along: whether it is uniform in every iteration."""
    loop = bodies.of_function(library[node.definition.attr["body"].func.name], library)
    names = list(loop.arguments)
    current = [each in uniform for each in node.inputs]
    while True:
        found = uniform_outputs(
            loop,
            {Output(name) for name, is_uniform in zip(names, current, strict=True) if is_uniform},
            replicas,
            library,
        )
        after = [was and result in found for was, result in zip(current, loop.results, strict=True)]
        if after == current:
            return current
        current = after


def called_results(
    name: str, uniform_inputs: Sequence[bool], replicas: int, library: "Library"
) -> list[bool]:
    """For each result of a function: whether it is uniform, given which arguments are."""
    called = bodies.of_function(library[name], library)
    arguments = {
        Output(name)
        for name, is_uniform in zip(called.arguments, uniform_inputs, strict=True)
        if is_uniform
    }
    found = uniform_outputs(called, arguments, replicas, library)
    return [each in found for each in called.results]


def _of_node(
    node: Node,
    outputs: int,
    body: Body,
    uniform: set[Output],
    replicas: int,
    library: "Library",
) -> Sequence[bool]:
    definition = node.definition
    all_inputs = all(each in uniform for each in node.inputs)
    if definition.op in ops.DEQUEUES:
        return [False] * outputs
    if definition.op in ops.COLLECTIVES:
        return [collectives.joins_all(node, body.nodes, replicas)] * outputs
    if ops.is_call(definition) and ops.is_coupled(definition, library):
        return _of_coupled(node, uniform, replicas, library)
    return [all_inputs and not ops.draws(definition, library)] * outputs


def _of_coupled(
    node: Node, uniform: set[Output], replicas: int, library: "Library"
) -> Sequence[bool]:
    inputs = [each in uniform for each in node.inputs]
    attributes: Mapping[str, object] = node.definition.attr
    if "body" in attributes:
        return while_arguments(node, uniform, replicas, library)
    if "then_branch" in attributes:
        branches = [
            called_results(node.definition.attr[each].func.name, inputs[1:], replicas, library)
            for each in ("then_branch", "else_branch")
        ]
        return [inputs[0] and all(each) for each in zip(*branches, strict=True)]
    return called_results(node.definition.attr["f"].func.name, inputs, replicas, library)
