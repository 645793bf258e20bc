"""Finds the tensors that a training step sends to the outfeed, and removes the ops that send them.

A program on PJRT devices has no outfeed. The tensors become results of the step instead.
"""

from dataclasses import dataclass
from typing import Any

from tpuserve.graph.graph_walk import called_functions, skip_identities
from tpuserve.graph.references import control_inputs, data_inputs, node_name, tensor_name
from tpuserve.lowering.rules.op_spec import OpKind
from tpuserve.lowering.rules.op_table import op_spec
from tpuserve.pjrt.randomness import RaiseUnsupported


@dataclass(frozen=True)
class SentTensors:
    """The tensors that a training step sends to the host.

    Attributes:
      condition: name of the tensor, bool [], that decides whether a step sends the tensors; None if
        all steps send them.
    """

    tensors: tuple[str, ...] = ()
    condition: str | None = None
    sends_if: bool = True


def remove_outfeed(graph: Any, refuse: RaiseUnsupported) -> SentTensors:
    """Remove the outfeed ops from the graph of a training step, in place.

    Args:
      refuse: raises an error. It is called for an outfeed op in a loop, and for a second outfeed op
        in the step.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    sent: SentTensors | None = None
    for node in graph.node:
        if op_spec(node.op).kind is OpKind.OUTFEED_ENQUEUE:
            tensors = SentTensors(tuple(tensor_name(name) for name in data_inputs(node)))
            _make_no_op(node, [f"^{node_name(name)}" for name in data_inputs(node)])
        elif not any(called_functions(node)):
            continue
        elif "then_branch" in node.attr:
            in_branch = _remove_from_branches(node, functions, refuse)
            if in_branch is None:
                continue
            tensors = in_branch
        else:
            for name in called_functions(node):
                for inner in functions[name].node_def if name in functions else ():
                    if op_spec(inner.op).kind is OpKind.OUTFEED_ENQUEUE:
                        refuse(inner, name)
            continue
        if sent is not None:
            refuse(node, "")
        sent = tensors
    return sent or SentTensors()


def _remove_from_branches(
    node: Any, functions: Any, refuse: RaiseUnsupported
) -> SentTensors | None:
    """Remove the outfeed op from a branch of an If, in place."""
    for branch, value in (("then_branch", True), ("else_branch", False)):
        name = node.attr[branch].func.name
        function = functions[name]
        for inner in function.node_def:
            if op_spec(inner.op).kind is not OpKind.OUTFEED_ENQUEUE:
                continue
            condition, *arguments = (tensor_name(reference) for reference in data_inputs(node))
            by_name = {
                argument.name: value
                for argument, value in zip(function.signature.input_arg, arguments, strict=True)
            }
            sent = [_find_argument(reference, function) for reference in data_inputs(inner)]
            if not all(argument in by_name for argument in sent):
                refuse(inner, name)
            # The NoOp that replaces the outfeed op need not wait for the data inputs of the
            # outfeed op: they are arguments of the function, known before any of its nodes runs.
            _make_no_op(inner, [])
            return SentTensors(tuple(by_name[argument] for argument in sent), condition, value)
    return None


def _find_argument(reference: str, function: Any) -> str:
    """Return the name of the argument or node whose tensor a chain of Identity nodes forwards."""
    nodes = {inner.name: inner for inner in function.node_def}
    return node_name(skip_identities(reference, nodes))


def _make_no_op(node: Any, producers: list[str]) -> None:
    inputs = dict.fromkeys([*producers, *control_inputs(node)])
    del node.input[:]
    node.input.extend(inputs)
    node.op = "NoOp"
    node.attr.clear()
