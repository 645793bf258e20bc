"""Replica-invariance analysis: finds the node outputs that are the same on all replicas.

Without a TPU, such an invariant value is computed only once. Values from the infeed differ between
replicas.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.ir.graph_ir import GraphIR, Node, Value
from tpuserve.lowering.passes import inlining
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_table import op_spec

if TYPE_CHECKING:
    from tpuserve.lowering.ir.op_defs import Library


def invariant_values(
    graph: GraphIR, known: set[Value], num_replicas: int, library: "Library"
) -> set[Value]:
    """Return the node outputs of a graph that are the same on all replicas.

    Args:
      library: function name → FunctionDef.
    """
    invariant = set(known)
    for node in graph.nodes.values():
        outputs = op_defs.node_outputs(node.definition, library)
        flags = _invariant_outputs(node, len(outputs), graph, invariant, num_replicas, library)
        for index, (is_invariant, (_, dtype)) in enumerate(zip(flags, outputs, strict=True)):
            # A handle is the same for all replicas, unless each replica passes its own variable.
            if is_invariant or (op_defs.is_handle(dtype) and invariant.issuperset(node.inputs)):
                invariant.add(Value(node.name, index))
    return invariant


def invariant_loop_variables(
    node: Node, invariant: set[Value], num_replicas: int, library: "Library"
) -> list[bool]:
    """Return, for each loop variable of a While, whether it is the same on all replicas.

    The result for a variable is True only if this holds in every iteration.

    Args:
      library: function name → FunctionDef.
    """
    body = inlining.inlined_function_body(node.definition.attr["body"].func.name, library)
    current = [value in invariant for value in node.inputs]
    # Repeat the analysis until its result is stable: a loop variable that differs between replicas
    # may cause other loop variables to differ in the next iteration.
    while True:
        known = {
            Value(name)
            for name, is_invariant in zip(body.arguments, current, strict=True)
            if is_invariant
        }
        in_body = invariant_values(body, known, num_replicas, library)
        after = [
            was_invariant and result in in_body
            for was_invariant, result in zip(current, body.results, strict=True)
        ]
        if after == current:
            return current
        current = after


def has_invariant_predicate(
    node: Node, invariant: set[Value], num_replicas: int, library: "Library"
) -> bool:
    """Return whether all replicas take the same branch, or run the same number of iterations.

    Args:
      library: function name → FunctionDef.
    """
    if not op_traits.is_loop(node.definition):
        return node.inputs[0] in invariant
    variables = invariant_loop_variables(node, invariant, num_replicas, library)
    return _has_invariant_condition(node, variables, num_replicas, library)


def must_split(
    node: Node, graph: GraphIR, invariant: set[Value], num_replicas: int, library: "Library"
) -> bool:
    """Return whether a loop or branch must be split because it updates a variable.

    If a loop or branch updates a variable, and its results differ between replicas, the update must
    run once, and the ops for the results must run on each replica.

    Args:
      library: function name → FunctionDef.
    """
    definition = node.definition
    if not (op_traits.is_loop(definition) or op_traits.is_branch(definition)):
        return False
    if not op_traits.writes_variable(definition, library) or op_traits.is_lowered_jointly(
        definition, library
    ):
        return False
    used = {*graph.results, *(value for other in graph.nodes.values() for value in other.inputs)}
    has_varying_result = any(
        value.producer == node.name and value not in invariant for value in used
    )
    return has_varying_result and has_invariant_predicate(node, invariant, num_replicas, library)


def invariant_results(
    function: str, invariant_arguments: Sequence[bool], num_replicas: int, library: "Library"
) -> list[bool]:
    """Return, for each result of a function, whether it is the same on all replicas."""
    body = inlining.inlined_function_body(function, library)
    known = {
        Value(name)
        for name, is_invariant in zip(body.arguments, invariant_arguments, strict=True)
        if is_invariant
    }
    in_body = invariant_values(body, known, num_replicas, library)
    return [result in in_body for result in body.results]


def _invariant_outputs(
    node: Node,
    num_outputs: int,
    graph: GraphIR,
    invariant: set[Value],
    num_replicas: int,
    library: "Library",
) -> Sequence[bool]:
    definition = node.definition
    rule = op_spec(node.op).invariance
    if rule is not None:
        return [rule(node, graph.nodes, num_replicas)] * num_outputs
    is_control_flow = op_traits.is_loop(definition) or op_traits.is_branch(definition)
    if is_control_flow and (
        op_traits.is_lowered_jointly(definition, library)
        or op_traits.writes_variable(definition, library)
    ):
        return _control_flow_outputs(node, num_outputs, invariant, num_replicas, library)
    is_invariant = all(value in invariant for value in node.inputs)
    return [is_invariant and not op_traits.is_random(definition, library)] * num_outputs


def _control_flow_outputs(
    node: Node, num_outputs: int, invariant: set[Value], num_replicas: int, library: "Library"
) -> Sequence[bool]:
    if op_traits.is_loop(node.definition):
        variables = invariant_loop_variables(node, invariant, num_replicas, library)
        if _has_invariant_condition(node, variables, num_replicas, library):
            return variables
        return [False] * num_outputs
    if node.inputs[0] not in invariant:
        return [False] * num_outputs
    arguments = [value in invariant for value in node.inputs[1:]]
    branches = [
        invariant_results(branch.name, arguments, num_replicas, library)
        for branch in op_traits.branch_functions(node.definition)
    ]
    return [all(flags) for flags in zip(*branches, strict=True)]


def _has_invariant_condition(
    node: Node, invariant_variables: Sequence[bool], num_replicas: int, library: "Library"
) -> bool:
    condition = node.definition.attr["cond"].func.name
    return all(invariant_results(condition, invariant_variables, num_replicas, library))
