"""Takes the ops out of a training step that the host can run after the step.

PJRT devices run several steps without the host. What the host computes must not go back to them:
summaries, prints and calls of Python functions whose results no other op uses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import tensorflow as tf

from tpuserve.graph.references import data_inputs, node_name, tensor_name
from tpuserve.lowering.ir import op_defs
from tpuserve.lowering.ir.function_renaming import rename_changed_functions, rename_outputs
from tpuserve.lowering.rules import op_traits
from tpuserve.lowering.rules.op_table import op_spec

Refuse: TypeAlias = Callable[[Any, str, str], NoReturn]
"""Takes a node, the name of its function ("" for the step) and a reason; raises an error."""

_FORWARDING = ("Identity", "IdentityN")
_RETURNED = "runs on the host, and an op of the devices takes its result"


@dataclass(frozen=True)
class HostPart:
    """The ops of a step that the host runs, for each replica, after the step.

    Attributes:
      tensors: names of the tensors in the step that these ops take.
      resources: name of another tensor that they take → its name in the program's graph.
    """

    graph: Any
    tensors: tuple[str, ...]
    resources: Mapping[str, str]
    targets: tuple[str, ...]

    def build(self, tensors: Sequence[Any]) -> Any:
        """Build the ops in the default graph, the program's; return an op that runs them all."""
        program = tf.compat.v1.get_default_graph()
        graph = type(self.graph)()
        graph.CopyFrom(self.graph)
        rename_changed_functions(graph, program.as_graph_def(), suffix="_after_step")
        inputs = dict(zip(self.tensors, tensors, strict=True))
        for name, outer in self.resources.items():
            inputs[name] = program.as_graph_element(outer)
        return tf.group(
            *tf.import_graph_def(
                graph, input_map=inputs, return_elements=self.targets, name="after_step"
            )
        )


def remove_host_part(
    graph: Any,
    variables: Mapping[str, Any],
    resources: Mapping[str, str],
    refuse: Refuse,
) -> HostPart | None:
    """Remove the ops that the host runs from the graph of a step, in place.

    Args:
      variables: name of a tensor in the step that is the handle of a variable → its VariableSpec.
      resources: name of a tensor in the step that is the handle of another resource → its name in
        the program's graph.
      refuse: raises an error. It is called if an op of the devices takes a result of the host, or
        if the host uses a variable other than by reading it in a branch.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    host = _find_host_nodes(graph, functions, refuse)
    if not host:
        return None
    others = {node.name: node for node in graph.node if node.name not in host}
    part = type(graph)(versions=graph.versions)
    tensors: dict[str, None] = {}
    outside: dict[str, str] = {}
    constants: set[str] = set()
    for node in host.values():
        for index, name in enumerate(map(tensor_name, data_inputs(node))):
            producer = others.get(node_name(name))
            if name in variables:
                spec = variables[name]
                _take_value(node, index, spec.dtype.as_datatype_enum, functions, refuse)
                read = graph.node.add(
                    name=f"after_step/read_{len(tensors)}", op="ReadVariableOp", input=[name]
                )
                read.attr["dtype"].type = spec.dtype.as_datatype_enum
                node.input[index] = name = f"{read.name}:0"
                tensors[name] = None
            elif name in resources:
                outside[name] = resources[name]
            elif producer is not None and producer.op == "Const":
                if producer.name not in constants:
                    constants.add(producer.name)
                    part.node.add().CopyFrom(producer)
                    _keep_controls(part.node[-1], {})
            elif node_name(name) not in host:
                tensors[name] = None
        copy = part.node.add()
        copy.CopyFrom(node)
        _keep_controls(copy, host)
    # Copy the functions after `_take_value` has changed them.
    part.library.CopyFrom(graph.library)
    remaining = [node for node in graph.node if node.name not in host]
    for node in remaining:
        _keep_controls(node, {}, but=host)
    del graph.node[:]
    graph.node.extend(remaining)
    for nodes in (part.node, *(function.node_def for function in part.library.function)):
        _remove_placement(nodes)
    return HostPart(part, tuple(tensors), outside, tuple(host))


def _find_host_nodes(graph: Any, functions: Any, refuse: Refuse) -> dict[str, Any]:
    host = {
        node.name: node
        for node in graph.node
        if any(map(op_traits.is_on_host, op_defs.walk_calls([node], functions)))
    }
    for node in host.values():
        for inner in op_defs.walk_calls([node], functions):
            if op_spec(inner.op).is_tpu_op:
                refuse(inner, "", "is an op of a TPU, and cannot run on the host")
    num_found = -1
    while num_found != len(host):
        num_found = len(host)
        for node in graph.node:
            producers = [name for name in map(node_name, data_inputs(node)) if name in host]
            if node.name in host or not producers:
                continue
            if node.op not in _FORWARDING:
                refuse(host[producers[0]], "", _RETURNED)
            host[node.name] = node
    return host


def _take_value(node: Any, index: int, dtype: int, functions: Any, refuse: Refuse) -> None:
    """Let an If take the value of a variable in the place of its handle, in place."""
    reason = "runs on the host, and uses a variable of the devices"
    if "then_branch" not in node.attr or index == 0:
        refuse(node, "", reason)
    node.attr["Tin"].list.type[index - 1] = dtype
    for branch in ("then_branch", "else_branch"):
        function = functions[node.attr[branch].func.name]
        argument = function.signature.input_arg[index - 1]
        argument.type = dtype
        argument.ClearField("handle_data")
        function.arg_attr.pop(index - 1, None)
        renamed = {}
        for inner in function.node_def:
            if argument.name not in inner.input:
                continue
            if inner.op != "ReadVariableOp":
                refuse(inner, function.signature.name, reason)
            inner.op = "Identity"
            inner.attr.clear()
            inner.attr["T"].type = dtype
            renamed[inner.name] = {"value": "output"}
        rename_outputs(function, renamed)


def _keep_controls(node: Any, kept: Any, *, but: Any = None) -> None:
    """Remove control inputs: all but those from `kept`, or those from `but`."""
    inputs = [
        name
        for name in node.input
        if name[0] != "^" or (name[1:] in kept if but is None else name[1:] not in but)
    ]
    del node.input[:]
    node.input.extend(inputs)


def _remove_placement(nodes: Any) -> None:
    for node in nodes:
        for name in [name for name in node.attr if name.startswith("_")]:
            del node.attr[name]
        node.device = ""
