"""Finds loops of TensorFlow 1.

They consist of Enter, Merge, Switch, NextIteration and Exit nodes for each loop variable, and of a
LoopCond node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tpuserve.lowering.ir import graph_ir
from tpuserve.lowering.ir.graph_ir import Node, Value
from tpuserve.lowering.passes.subgraphs import Subgraph, extract_subgraph

OPS = frozenset(("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"))
"""The ops of the control flow of TensorFlow 1."""


@dataclass(frozen=True)
class LoopVariable:
    """The nodes of one loop variable in a loop of TensorFlow 1.

    Attributes:
      switch: Name of the Switch node, which passes the value to the body of the loop, or after the
        last iteration to the Exit node. None if only the loop condition uses the variable.
      awaited: Names of the nodes that must run before the next iteration.
    """

    merge: str
    enter: str
    initial: Value
    switch: str | None
    next_value: Value
    awaited: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """A loop of TensorFlow 1, with all that is needed to replace it by a While."""

    condition: Subgraph
    body: Subgraph
    variables: tuple[LoopVariable, ...]


def find_loop(nodes: Mapping[str, Node], loop_cond: str) -> Loop | None:
    """Find the loop to which a LoopCond node belongs.

    Returns:
      None if the loop contains another loop, or does not have the form that TensorFlow 1 builds.
    """
    predicate = nodes[loop_cond].inputs[0]
    switches = {
        node.inputs[0].producer: name
        for name, node in nodes.items()
        if node.op == "Switch" and node.inputs[1].producer == loop_cond
    }
    merges = dict.fromkeys(name for name in switches if _is(nodes, name, "Merge"))
    # A loop variable that only the loop condition uses has no Switch. Find its Merge node among the
    # nodes that compute the condition.
    merges |= dict.fromkeys(
        name for name in _walk(nodes, [predicate], merges) if is_loop_merge(nodes, name)
    )
    variables = [_find_variable(nodes, name, switches.get(name)) for name in merges]
    if not all(variables):
        return None
    loop_variables = tuple(variable for variable in variables if variable is not None)
    stop = {
        *merges,
        *(variable.switch for variable in loop_variables if variable.switch),
        loop_cond,
    }
    condition_inputs = {
        Value(variable.merge): index for index, variable in enumerate(loop_variables)
    }
    body_inputs = {
        value: index
        for index, variable in enumerate(loop_variables)
        for value in [Value(variable.switch, 1) if variable.switch else Value(variable.merge)]
    }
    # If the body does not change a loop variable, it may use the output of the Merge node directly,
    # without a Switch.
    body_inputs |= {value: index for value, index in condition_inputs.items()}
    condition = extract_subgraph(nodes, [predicate], condition_inputs, stop)
    body = extract_subgraph(
        nodes,
        [variable.next_value for variable in loop_variables],
        body_inputs,
        stop,
        awaited=(name for variable in loop_variables for name in variable.awaited),
    )
    inner = [*condition.nodes.values(), *body.nodes.values()]
    if any(node.op in ("LoopCond", "NextIteration", "Exit") for node in inner):
        return None
    if not (condition.is_closed and body.is_closed):
        return None
    return Loop(condition, body, loop_variables)


def is_loop_merge(nodes: Mapping[str, Node], name: str) -> bool:
    """Return whether a node is the Merge of a loop, and not the Merge of a branch."""
    return _is(nodes, name, "Merge") and any(
        _is(nodes, value.producer, "NextIteration") for value in nodes[name].inputs
    )


def _find_variable(
    nodes: Mapping[str, Node], merge: str, switch: str | None
) -> LoopVariable | None:
    inputs = [nodes.get(value.producer) for value in nodes[merge].inputs]
    entering = [node for node in inputs if node is not None and node.op == "Enter"]
    turning = [node for node in inputs if node is not None and node.op == "NextIteration"]
    if len(entering) != 1 or len(turning) != 1:
        return None
    (enter,), (turn,) = entering, turning
    return LoopVariable(
        merge, enter.name, enter.inputs[0], switch, turn.inputs[0], tuple(turn.controls)
    )


def _is(nodes: Mapping[str, Node], name: str, op: str) -> bool:
    return name in nodes and nodes[name].op == op


def _walk(
    nodes: Mapping[str, Node], values: Iterable[Value], stop: Mapping[str, None]
) -> list[str]:
    """Return the names of the nodes that some node outputs depend on."""
    reached: dict[str, None] = {}
    pending = [value.producer for value in values]
    while pending:
        name = pending.pop()
        if name in reached or name not in nodes:
            continue
        reached[name] = None
        if name not in stop and not _is(nodes, name, "Enter") and not is_loop_merge(nodes, name):
            pending.extend(graph_ir.predecessors(nodes[name]))
    return list(reached)
